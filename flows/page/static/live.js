// Replace each element that has data-live by what its address returns, every few seconds, while the page is seen.
"use strict";

const SECONDS = 3;

async function refresh(element) {
  let answer;
  try {
    answer = await fetch(element.dataset.live, {headers: {"Accept": "text/html"}});
  } catch {
    return;  // the server restarts; the next round comes
  }
  if (!answer.ok) return;
  const text = await answer.text();
  // Whoever stands in a part with the keyboard, or selects text in it, is not disturbed.
  if (text === element.dataset.shown || element.contains(document.activeElement)) return;
  const selection = document.getSelection();
  if (selection && !selection.isCollapsed && selection.containsNode(element, true)) return;
  element.dataset.shown = text;
  const parsed = new DOMParser().parseFromString(text, "text/html");
  element.replaceChildren(...parsed.body.childNodes);
  if (answer.headers.get("X-Ended")) element.removeAttribute("data-live");
}

setInterval(() => {
  if (document.hidden) return;
  document.querySelectorAll("[data-live]").forEach(refresh);
}, SECONDS * 1000);
