// Buying without leaving the page: the form is sent in the background, and the answer's page is shown in the dialog.

/** @type {AbortController | undefined} */
let running;

/** @param {string} text */
const parsed = text => new DOMParser().parseFromString(text, "text/html");

/** Puts the form of a fresh page in place of each form here, because a key counts once. */
async function renew() {
  const reply = await fetch(location.href, { headers: { accept: "text/html" } });
  if (!reply.ok) return;
  const fresh = parsed(await reply.text());
  for (const form of document.querySelectorAll("main form[data-buy]")) {
    const other = fresh.querySelector(`main form[data-buy="${form.getAttribute("data-buy")}"]`);
    if (other) form.replaceWith(other);
  }
}

/**
 * Shows the answer to a purchase.
 * @param {HTMLDialogElement} dialog
 * @param {Document} page
 * @param {string} address
 */
function show(dialog, page, address) {
  const outcome = page.querySelector("[data-outcome]");
  const place = dialog.querySelector(".outcome");
  if (!outcome || !place) return false;
  outcome.querySelectorAll("[data-page-only]").forEach(part => part.remove());
  outcome.querySelector("[data-title]")?.setAttribute("id", "outcome-title");
  place.replaceChildren(outcome);
  if (outcome.getAttribute("data-outcome") === "bought") {
    const onward = document.createElement("p");
    onward.className = "onward";
    for (const [label, path] of [["Receipt", address], ["Your purchases", "/shop/purchases"]]) {
      onward.append(Object.assign(document.createElement("a"), { textContent: label, href: path }));
    }
    place.append(onward);
  }
  document.dispatchEvent(new Event("quire:page"));
  if (!dialog.open) dialog.showModal();
  return true;
}

/** @param {HTMLFormElement} form */
async function buy(form) {
  const dialog = document.getElementById("outcome");
  const button = form.querySelector("button");
  // A second click meets a form that is being sent; if it came through, its key would still count once.
  if (running || !button || !(dialog instanceof HTMLDialogElement)) return;
  running = new AbortController();
  button.setAttribute("aria-busy", "true");
  try {
    const fields = new URLSearchParams();
    for (const [name, value] of new FormData(form)) fields.set(name, String(value));
    const reply = await fetch(form.action, { method: "POST", body: fields, headers: { accept: "text/html" }, signal: running.signal });
    if (!show(dialog, parsed(await reply.text()), reply.url)) form.submit();
  } catch {
    // No answer came: the browser sends the same form itself, and says what is wrong if it cannot.
    form.submit();
  } finally {
    running = undefined;
    button.removeAttribute("aria-busy");
  }
}

document.addEventListener("submit", event => {
  const form = event.target;
  if (!(form instanceof HTMLFormElement) || !form.dataset["buy"]) return;
  event.preventDefault();
  void buy(form);
});
document.getElementById("outcome")?.addEventListener("close", () => void renew());
document.addEventListener("quire:stale", () => void renew());
