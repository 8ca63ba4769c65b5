// Parts of a page as they change, by one event stream. A hidden page lets go of it.

/** Waits in milliseconds: after a refusal to ask why, and until a form may be sent again. */
const PAUSE = 1000;
/** After a refusal, if too many pages are live or the server stops. */
const REFUSED_WAIT = 30_000;

/** Time in which a tap becomes a click. */
const TAP = 300;

/** @type {EventSource | undefined} */
let source;
/** The newest content of parts that wait until no one uses a button there. @type {Map<string, string>} */
const held = new Map();
let wait = 0;

const parts = [...document.querySelectorAll("[data-part]")].map(element => element.id);
const label = document.querySelector("[data-live]");

/**
 * @param {string} text
 * @param {boolean} isLost
 */
function say(text, isLost) {
  if (!label || label.textContent === text) return;
  label.removeAttribute("hidden");
  label.classList.toggle("lost", isLost);
  label.textContent = text;
}

/** Times in the operator's zone and words. */
function localize() {
  const format = new Intl.DateTimeFormat(navigator.languages, { dateStyle: "medium", timeStyle: "medium" });
  for (const element of document.querySelectorAll("time[datetime]")) {
    element.textContent = format.format(new Date(element.getAttribute("datetime") ?? ""));
  }
}

/** @param {HTMLElement} place */
function isInUse(place) {
  if (!place.querySelector("button")) return false;
  return place.contains(document.activeElement) || place.querySelector("button:hover") !== null;
}

/**
 * Puts a part into its place, or holds it back while someone is about to press a button there.
 * @param {{ id: string, html: string }} part
 */
function put({ id, html }) {
  const place = document.getElementById(id);
  if (!place) return;
  if (isInUse(place)) {
    held.set(id, html);
    return;
  }
  held.delete(id);
  const newest = place.querySelector("[data-number]")?.getAttribute("data-number");
  place.innerHTML = html;
  if (newest === undefined) return;
  for (const row of place.querySelectorAll("[data-number]")) {
    if (Number(row.getAttribute("data-number")) > Number(newest)) row.classList.add("fresh");
  }
}

function release() {
  for (const [id, html] of [...held]) put({ id, html });
  localize();
}

function stop() {
  clearTimeout(wait);
  source?.close();
  source = undefined;
}

function follow() {
  stop();
  if (document.hidden || parts.length === 0) return;
  const query = new URLSearchParams(location.search);
  query.set("parts", parts.join(","));
  const opened = source = new EventSource(`/admin/live?${query}`);
  opened.addEventListener("open", () => say("Live", false));
  opened.addEventListener("part", event => {
    put(JSON.parse(event.data));
    localize();
  });
  opened.addEventListener("over", () => {
    stop();
    location.reload();
  });
  opened.addEventListener("error", () => {
    say("Not live: no answer from the server", true);
    // After a lost connection the browser tries again by itself; after a refusal it does not.
    if (opened.readyState === EventSource.CLOSED) wait = setTimeout(again, PAUSE);
  });
}

/** Tries again after a refusal: a session that is over leads to the form for a token. */
async function again() {
  const reply = await fetch(location.href, { method: "HEAD" }).catch(() => undefined);
  if (reply?.status === 401) location.reload();
  else wait = setTimeout(follow, REFUSED_WAIT);
}

// A double click sends once: the second of two requests for a file would end the first, and get none.
document.addEventListener("submit", event => {
  if (!(event.target instanceof HTMLFormElement)) return;
  const { dataset } = event.target;
  if (dataset.sent) event.preventDefault();
  dataset.sent = "yes";
  setTimeout(() => delete dataset.sent, PAUSE);
});

for (const left of ["focusout", "pointerout"]) {
  document.addEventListener(left, () => { if (held.size > 0) setTimeout(release, TAP); });
}
document.addEventListener("visibilitychange", follow);
addEventListener("pagehide", stop);
addEventListener("pageshow", event => { if (event.persisted) follow(); });
follow();
localize();
// On a narrow screen the navigation is longer than the screen is wide.
document.querySelector(".rooms [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
