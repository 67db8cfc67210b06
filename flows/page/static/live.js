// Replace each element that has data-live by what its address returns, every few seconds, while the page is seen.
"use strict";

const SECONDS = 3, PATIENCE_SECONDS = 5;
let updated = new Date(), problem = "";

function say() {
  const line = document.querySelector("[data-updated]");
  if (!line || !document.querySelector("[data-live]")) return;
  line.hidden = false;
  line.classList.toggle("lost", Boolean(problem));
  const text = `${problem}Last updated ${updated.toLocaleTimeString()}.`;
  if (line.textContent !== text) line.textContent = text;
}

// Whoever stands in a part with the keyboard, or selects text in it, is not disturbed, and told so.
function isHeld(element) {
  const selection = document.getSelection();
  return element.contains(document.activeElement)
    || Boolean(selection && !selection.isCollapsed && selection.containsNode(element, true));
}

async function refresh(element) {
  let answer, text;
  try {
    const signal = AbortSignal.timeout(PATIENCE_SECONDS * 1000);  // a stopped process takes the request and is silent
    answer = await fetch(element.dataset.live, {headers: {"Accept": "text/html"}, signal});
    text = await answer.text();
    if (!answer.ok) throw new Error(answer.statusText);
  } catch {
    problem = "Connection lost: what you see may be old. ";
    return;
  }
  if (text !== element.dataset.shown && isHeld(element)) {
    problem = "Updates wait while you stand or select in the page. ";
    return;
  }
  problem = "";
  updated = new Date();
  if (text === element.dataset.shown) return;
  element.dataset.shown = text;
  const parsed = new DOMParser().parseFromString(text, "text/html");
  const open = [...element.querySelectorAll("details[open] > summary")].length > 0;
  element.replaceChildren(...parsed.body.childNodes);
  if (open) element.querySelectorAll("details").forEach((each) => { each.open = true; });
  if (answer.headers.get("X-Ended")) element.removeAttribute("data-live");
}

let isAsking = false;

async function refreshAll() {
  if (document.hidden || isAsking) return;
  isAsking = true;
  await Promise.all([...document.querySelectorAll("[data-live]")].map(refresh));
  isAsking = false;
  say();
}

setInterval(refreshAll, SECONDS * 1000);
document.addEventListener("visibilitychange", refreshAll);
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-cookie]");
  if (!button) return;
  document.cookie = `${button.dataset.cookie}; path=/; max-age=31536000; samesite=strict`;
  button.blur();
  refreshAll();
});
say();
