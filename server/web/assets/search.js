// Results while one types, and the cover that moves to the book's page.

/** Pause after a letter, in milliseconds. */
const PAUSE = 140;

const field = document.getElementById("q");
let timer = 0;
/** @type {AbortController | undefined} */
let running;
/** The page shows results in place of what it was loaded with. */
let isReplaced = false;

/**
 * @param {Document} page
 * @param {string} address
 */
function replace(page, address) {
  const [main, fresh] = [document.querySelector("main"), page.querySelector("main")];
  if (!main || !fresh) return;
  main.replaceChildren(...fresh.childNodes);
  document.title = page.title;
  if (isReplaced || location.pathname === "/shop/search") history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  isReplaced = true;
  const announcement = document.getElementById("announcement");
  const count = main.querySelectorAll(".results li").length;
  if (announcement) announcement.textContent = count === 1 ? "1 result" : `${count} results`;
  document.dispatchEvent(new Event("quire:page"));
}

/** @param {string} typed */
async function search(typed) {
  running?.abort();
  running = new AbortController();
  const address = `/shop/search?q=${encodeURIComponent(typed)}`;
  try {
    const reply = await fetch(address, { headers: { accept: "text/html" }, signal: running.signal });
    const page = new DOMParser().parseFromString(await reply.text(), "text/html");
    if (reply.ok) replace(page, address);
  } catch {
    // A newer search, or no answer: Enter loads the page.
  }
}

if (field instanceof HTMLInputElement) {
  field.addEventListener("input", () => {
    clearTimeout(timer);
    const typed = field.value.trim();
    if (typed) timer = setTimeout(() => void search(typed), PAUSE);
  });
}
addEventListener("popstate", () => { if (isReplaced) location.reload(); });

document.addEventListener("click", event => {
  const card = event.target instanceof Element && event.target.closest(".card");
  const cover = card && card.querySelector(".cover");
  if (!(cover instanceof HTMLElement) || event.metaKey || event.ctrlKey) return;
  for (const other of document.querySelectorAll(".cover")) {
    if (other instanceof HTMLElement) other.style.viewTransitionName = "none";
  }
  cover.style.viewTransitionName = "cover";
});
