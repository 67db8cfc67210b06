// Decide about the pictures of a review: keys, ranges, undo. A decision is kept in this browser until the server
// has it, under a key of its own: sent twice, it is added once.
"use strict";

const review = document.querySelector("[data-review]");
if (review) begin();

function begin() {
  const cards = [...review.querySelectorAll("[data-record]")];
  const byRecord = new Map(cards.map((card) => [card.dataset.record, card]));
  const told = review.querySelector("[data-told]");
  const who = document.querySelector("[data-who]");
  const writes = "writes" in review.dataset;
  const KEPT = `shardmill-review/${review.dataset.dataset}/`;
  const classes = new Set([...review.querySelectorAll("datalist option")].map((option) => option.value));
  let token = review.dataset.token, anchor = null, isSending = false, batches = [];

  const say = (text) => { if (told) told.textContent = text; };
  const focused = () => (cards.includes(document.activeElement) ? document.activeElement : byTab());
  const byTab = () => cards.find((card) => card.tabIndex === 0) || cards[0];
  const selected = () => {
    const found = cards.filter((card) => card.ariaSelected === "true");
    return found.length ? found : [focused()];
  };

  function stand(card, extend = false) {
    if (!card) return;
    const from = extend ? anchor || focused() : null;
    for (const each of cards) {
      each.tabIndex = each === card ? 0 : -1;
      each.setAttribute("aria-selected", "false");
    }
    if (from) {
      const [low, high] = [cards.indexOf(from), cards.indexOf(card)].sort((a, b) => a - b);
      cards.slice(low, high + 1).forEach((each) => each.setAttribute("aria-selected", "true"));
    }
    anchor = from;
    card.focus({preventScroll: true});
    card.scrollIntoView({block: "nearest"});
  }

  function moved(key) {
    const at = cards.indexOf(focused());
    if (key === "ArrowLeft") return cards[at - 1];
    if (key === "ArrowRight") return cards[at + 1];
    if (key === "Home") return cards[0];
    if (key === "End") return cards[cards.length - 1];
    // The card above or below, by where cards are drawn.
    const own = cards[at].getBoundingClientRect(), step = key === "ArrowDown" ? 1 : -1;
    for (let next = at + step, best = null; ; next += step) {
      const box = cards[next] && cards[next].getBoundingClientRect();
      if (!box) return best;
      if (Math.abs(box.top - own.top) < 2) continue;
      if (Math.abs(box.left - own.left) < 2) return cards[next];
      best = best || cards[next];
      if (step > 0 ? box.left > own.left : box.left < own.left) return step > 0 ? cards[next - 1] : cards[next + 1];
    }
  }

  function forward() {
    const all = selected(), at = cards.indexOf(all[all.length - 1]);
    const next = cards.slice(at + 1).find((card) => !card.classList.contains("done"))
      || cards.find((card) => !card.classList.contains("done"));
    if (next) return stand(next);
    stand(cards[at]);
    say("All on this page are decided. Reload it for more.");
  }

  function newKey() {
    return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  function show(card, now, waits = false) {
    const wasDone = card.classList.contains("done");
    card.classList.toggle("done", Boolean(now));
    card.classList.toggle("waits", waits);
    card.dataset.seen = now && now.key ? now.key : "";
    const chip = card.querySelector("[data-verdict]");
    chip.textContent = now ? `${now.decision}${now.to ? ` ${now.to}` : ""} · ${now.by}` : "";
    chip.classList.toggle("filtered", Boolean(now));
    if (wasDone !== Boolean(now)) count(now ? 1 : -1);
  }

  function count(more) {
    for (const [name, sign] of [["[data-open]", -1], ["[data-decided]", 1]]) {
      const element = document.querySelector(name);
      element.textContent = (Number(element.textContent.replaceAll(",", "")) + sign * more).toLocaleString("en");
    }
    document.querySelector("progress").value += more;
  }

  function decide(chosen, decision, toOf = () => "") {
    const by = who.value.trim();
    if (!by) { who.focus(); return say("Say who decides."); }
    const rows = chosen.map((card) => ({
      key: newKey(), record: card.dataset.record, decision, to: toOf(card), seen: card.dataset.seen || null,
      was: card.dataset.was, run: card.dataset.run, reason: card.dataset.reason,
    }));
    const batch = newKey();
    try {
      localStorage.setItem(KEPT + batch, JSON.stringify({by, decisions: rows, at: Date.now()}));
    } catch {
      return say("This browser keeps nothing for pages, so nothing is decided: allow it, or free space.");
    }
    batches.push(chosen);
    chosen.forEach((card, at) => {
      const undone = decision === "undo";
      show(card, undone ? null : {key: rows[at].key, decision, to: rows[at].to, by}, true);
    });
    const words = chosen.length === 1 ? chosen[0].querySelector("code").textContent : `${chosen.length} records`;
    say(`${decision}: ${words}`);
    send();
  }

  function waiting() {
    return Object.keys(localStorage).filter((name) => name.startsWith(KEPT))
      .map((name) => [name, JSON.parse(localStorage.getItem(name))]).sort(([, a], [, b]) => a.at - b.at);
  }

  async function post({by, decisions}) {
    return fetch(review.dataset.review, {
      method: "POST", signal: AbortSignal.timeout(20000), body: JSON.stringify({by, decisions}),
      headers: {"Content-Type": "application/json", "X-Shardmill-Token": token},
    });
  }

  async function send() {
    if (isSending) return;
    isSending = true;
    let failed = "";
    for (let all = waiting(); all.length && !failed; all = waiting()) {
      const [name, request] = all[0];
      try {
        let answer = await post(request);
        if (answer.status === 409) {
          token = (await (await fetch("/review/token")).json()).token;
          answer = await post(request);
        }
        if (answer.ok || answer.status === 422 || answer.status === 413) {
          settle(request, answer.status === 413 ? {problem: await answer.text()} : await answer.json());
          localStorage.removeItem(name);
        } else failed = `The server refuses (${answer.status}).`;
      } catch {
        failed = "The server does not answer.";
      }
    }
    isSending = false;
    if (failed) {
      say(`${failed} ${waiting().length} decisions are kept in this browser and sent again.`);
      setTimeout(send, 2000);
    }
  }

  function settle(request, answer) {
    if (answer.problem) say(`Not decided: ${answer.problem}`);
    for (const row of request.decisions) {
      const card = byRecord.get(row.record);
      if (!card) continue;
      const isNewer = waiting().some(([, other]) => other !== request
        && other.decisions.some((each) => each.record === row.record && each.key !== row.key));
      if (isNewer) continue;
      if (answer.problem) show(card, null);
      else if (row.record in answer.done) show(card, answer.done[row.record]);
      else if (row.record in answer.overtaken) {
        const other = answer.overtaken[row.record];
        show(card, other);
        const what = other ? `${other.by} decided ${other.decision} ${other.to}` : "another person undid it";
        say(`Meanwhile ${what.trim()}: ${card.querySelector("code").textContent}. Decide again to overrule.`);
      }
    }
  }

  function undo() {
    const here = selected().filter((card) => card.classList.contains("done"));
    let chosen = here;
    while (!chosen.length && batches.length) chosen = batches.pop().filter((card) => card.classList.contains("done"));
    if (!chosen.length) return say("Nothing to undo.");
    decide(chosen, "undo");
    batches.pop();
    stand(chosen[0]);
  }

  function accept() {
    const chosen = selected().filter((card) => card.dataset.suggested);
    if (!chosen.length) return say("Nothing is suggested: press R for another label.");
    decide(chosen, "relabel", (card) => card.dataset.suggested);
    forward();
  }

  const dialog = review.querySelector("[data-dialog]");
  let relabelled = [];

  function relabel() {
    relabelled = selected();
    const input = dialog.querySelector("[data-label]");
    input.value = relabelled[0].dataset.suggested;
    dialog.querySelector("[data-label-told]").textContent = "";
    dialog.showModal();
    input.select();
  }

  function askedLabel(event) {
    event.preventDefault();
    const label = dialog.querySelector("[data-label]").value.trim(), line = dialog.querySelector("[data-label-told]");
    if (!label) { line.textContent = "Write a label."; return; }
    if (!classes.has(label) && line.dataset.asked !== label) {
      line.dataset.asked = label;
      line.textContent = `There is no class “${label}” yet. Press Enter again to make it.`;
      return;
    }
    dialog.close();
    decide(relabelled, "relabel", () => label);
    forward();
  }

  const deeds = {
    keep: () => { decide(selected(), "keep"); forward(); },
    exclude: () => { decide(selected(), "exclude"); forward(); },
    unsure: () => { decide(selected(), "unsure"); forward(); },
    next: forward,
    undo,
    ...("relabels" in review.dataset ? {accept, relabel} : {}),
  };
  const KEYS = {k: "keep", x: "exclude", u: "unsure", n: "next", z: "undo", a: "accept", r: "relabel"};

  review.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, dialog, select")) return;
    if (/^(Arrow(Left|Right|Up|Down)|Home|End)$/.test(event.key)) {
      if (!event.target.closest("[role=listbox]")) return;
      event.preventDefault();
      stand(moved(event.key), event.shiftKey);
    } else if (event.key === "Escape") stand(focused());
    else {
      const deed = writes && deeds[KEYS[event.key.toLowerCase()]];
      if (deed && !event.repeat) { event.preventDefault(); deed(); }
    }
  });
  review.addEventListener("click", (event) => {
    const button = event.target.closest("[data-do]"), card = event.target.closest("[data-record]");
    if (button) deeds[button.dataset.do]();
    else if (card) stand(card, event.shiftKey);
  });
  if (!writes) return;
  dialog.querySelector("form").addEventListener("submit", askedLabel);
  dialog.querySelector("[data-cancel]").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => focused().focus());
  const name = localStorage.getItem("shardmill-reviewer");
  if (name) who.value = name;
  who.addEventListener("change", () => localStorage.setItem("shardmill-reviewer", who.value.trim()));
  // Cards whose decisions were not sent before this page was loaded.
  for (const [, request] of waiting()) {
    for (const row of request.decisions) {
      const card = byRecord.get(row.record);
      if (card) show(card, row.decision === "undo" ? null : {...row, by: request.by}, true);
    }
  }
  stand(cards.find((card) => !card.classList.contains("done")) || byTab());
  send();
}
