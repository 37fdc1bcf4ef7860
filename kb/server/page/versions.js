// Versions of an entry, and what changed between two of them.

import { part } from "/api.js";
import { el, table } from "/dom.js";
import { day, home } from "/words.js";

export async function versions({ id, signal, url }) {
  const found = await part(id, "versions", {}, signal);
  const numbers = found.versions.map((one) => one.version);
  const rows = found.versions.map((one) => [
    el("a", { href: `${home(id)}?version=${one.version}` }, String(one.version)), el("span", { class: "nowrap" }, day(one.date_utc)),
    one.subject ?? "–", one.author ?? "–", el("code", {}, (one.commit ?? "").slice(0, 12) || "–"),
  ]);
  const shown = [table("Versions", ["version", "date", "change", "author", "commit"], rows, { hideCaption: true })];
  if (!found.complete) shown.push(el("p", { class: "note" }, found.note ?? "Git here holds only the newest commits, so older versions may be missing."));
  if (numbers.length > 1) shown.push(comparing(id, numbers, signal, url));
  else shown.push(el("p", { class: "soft" }, "There is one version, so there is nothing to compare."));
  return shown;
}

function comparing(id, numbers, signal, url) {
  const asked = (name, otherwise) => (numbers.includes(Number(url.searchParams.get(name))) ? Number(url.searchParams.get(name)) : otherwise);
  const place = el("div", { class: "diff-place" });
  const choose = (name, on) => el("select", { id: `diff-${name}`, on: { change: compare } },
    numbers.map((one) => el("option", { value: one, selected: one === on }, `version ${one}`)));
  const old = choose("old", asked("old", numbers[1]));
  const now = choose("new", asked("new", numbers[0]));
  async function compare(event) {
    if (event) {
      const next = new URL(location.href);
      next.searchParams.set("old", old.value);
      next.searchParams.set("new", now.value);
      history.replaceState(history.state, "", next);
      document.dispatchEvent(new CustomEvent("kb-moved"));
    }
    place.setAttribute("aria-busy", "true");
    try {
      const found = await part(id, "diff", { old: old.value, new: now.value }, signal);
      place.replaceChildren(diff(found.lines));
    } catch (error) {
      if (error.name !== "AbortError") place.replaceChildren(el("p", { class: "failure inline", role: "alert" }, error.message));
    } finally {
      place.removeAttribute("aria-busy");
    }
  }
  compare();
  return el("div", { class: "compare" },
    el("p", { class: "row" }, el("label", { for: "diff-old" }, "Compare"), old, el("label", { for: "diff-new" }, "with"), now), place);
}

/** A unified diff as a table with the line numbers of both sides. */
export function diff(lines) {
  if (!lines.length) return el("p", { class: "empty" }, "Nothing that is kept differs between these two.");
  let left = 0;
  let right = 0;
  const rows = lines.map((line) => {
    const hunk = line.match(/^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/);
    if (hunk) {
      [left, right] = [Number(hunk[1]), Number(hunk[2])];
      return row("at", "", "", "", line);
    }
    if (/^(---|\+\+\+) /.test(line) && !left) return row("name", "", "", "", line);
    if (/^(---|\+\+\+|diff |index |new file|deleted file)/.test(line)) {
      left = right = 0;
      return row("name", "", "", "", line);
    }
    if (line.startsWith("+")) return row("plus", "", right++, "+", line.slice(1));
    if (line.startsWith("-")) return row("minus", left++, "", "−", line.slice(1));
    return row("same", left++ || "", right++ || "", "", line.slice(1));
  });
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "differences" },
    el("table", { class: "diff" }, el("caption", { class: "unseen" }, "Differences, line by line"), el("tbody", {}, rows)));
}

function row(name, left, right, sign, text) {
  return el("tr", { class: name }, el("td", { class: "n" }, left), el("td", { class: "n" }, right),
    el("td", { class: "sign" }, sign), el("td", { class: "text" }, text || " "));
}
