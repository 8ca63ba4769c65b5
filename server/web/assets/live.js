// Stock and prices as they change, by one event stream for the books on the page. A hidden page lets go of it.

/** @typedef {{ book: number, stock: string, level: "in" | "low" | "out", price: string }} News */

/** Most books that a stream may have. */
const BOOKS_MAX = 64;

/** Wait after a refusal, in milliseconds: too many pages are live, or the server stops. */
const REFUSED_WAIT = 30_000;

/** @type {EventSource | undefined} */
let source;
let wait = 0;

/** The numbers of the books on the page. */
function listed() {
  const shown = [...document.querySelectorAll("[data-stock]")].map(element => element.getAttribute("data-stock") ?? "");
  return [...new Set(shown)].slice(0, BOOKS_MAX);
}

/**
 * @param {Element} element
 * @param {string} text
 */
function put(element, text) {
  if (element.textContent === text) return;
  element.textContent = text;
  element.classList.remove("changed");
  // A new animation begins only after the style was computed without it.
  void element.getBoundingClientRect();
  element.classList.add("changed");
}

/** @param {News} news */
function show({ book, stock, level, price }) {
  for (const element of document.querySelectorAll(`[data-price="${book}"]`)) {
    const changed = element.textContent !== price && element.closest(".particulars");
    put(element, price);
    // The form's key holds the price that the shopper saw.
    if (changed) document.dispatchEvent(new Event("quire:stale"));
  }
  for (const element of document.querySelectorAll(`[data-stock="${book}"]`)) {
    const before = element.classList;
    if (before.contains("out") !== (level === "out") && element.closest(".particulars")) turn(book, level === "out");
    for (const owner of [element, element.closest(".card")]) {
      owner?.classList.remove("in", "low", "out");
      owner?.classList.add(level);
    }
    put(element, stock);
  }
}

/**
 * The page of a book whose last copy went, or that has new ones.
 * @param {number} book
 * @param {boolean} isOut
 */
function turn(book, isOut) {
  for (const button of document.querySelectorAll(`form[data-buy="${book}"] button`)) {
    if (button instanceof HTMLButtonElement) button.disabled = isOut;
  }
  document.querySelectorAll("[data-when-out]").forEach(text => text.toggleAttribute("hidden", !isOut));
  document.querySelectorAll("[data-when-in]").forEach(text => text.toggleAttribute("hidden", isOut));
  const announcement = document.getElementById("announcement");
  if (announcement) announcement.textContent = isOut ? "Sold out just now." : "There are copies again.";
}

function stop() {
  clearTimeout(wait);
  source?.close();
  source = undefined;
}

function follow() {
  stop();
  const books = listed();
  if (document.hidden || books.length === 0) return;
  const opened = source = new EventSource(`/shop/live?books=${books.join(",")}`);
  opened.addEventListener("book", event => show(JSON.parse(event.data)));
  opened.addEventListener("error", () => {
    // After a lost connection the browser tries again by itself; after a refusal it does not.
    if (opened.readyState === EventSource.CLOSED) wait = setTimeout(follow, REFUSED_WAIT);
  });
}

/** Times in the visitor's zone and words. */
function localize() {
  const format = new Intl.DateTimeFormat(navigator.languages, { dateStyle: "medium", timeStyle: "short" });
  for (const element of document.querySelectorAll("time[datetime]")) {
    element.textContent = format.format(new Date(element.getAttribute("datetime") ?? ""));
  }
}

document.addEventListener("visibilitychange", follow);
document.addEventListener("quire:page", () => { follow(); localize(); });
addEventListener("pagehide", stop);
addEventListener("pageshow", event => { if (event.persisted) follow(); });
follow();
localize();
