// Readmes and code as the server parsed them, made into elements: known tags only, text as text.

import { el, safeHref } from "/dom.js";

const TAGS = new Set(["p", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "strong", "em", "del", "code", "span",
  "table", "thead", "tbody", "tr", "th", "td", "hr", "br"]);
const RUNS = new Set(["k", "s", "c", "n", "f", "b", "d"]);
const DEEPEST = 60;

/** Code as lines of coloured runs; `numbers` shows line numbers, which are not copied. */
export function code(lines, { numbers = false, label = "code" } = {}) {
  const rows = lines.map((runs) => el("span", { class: "line" },
    runs.map(([name, text]) => (RUNS.has(name) ? el("span", { class: `hl-${name}` }, text) : text)), "\n"));
  return el("pre", { class: numbers ? "code numbered" : "code", tabindex: "0", role: "region", "aria-label": label }, el("code", {}, rows));
}

/** A parsed readme. */
export const readme = (nodes) => el("div", { class: "prose" }, nodes.map((node) => element(node, 0)));

function element(node, depth) {
  if (typeof node === "string") return node;
  if (depth > DEEPEST || node === null || typeof node !== "object") return null;
  if (node.t === "pre") return code(node.lines ?? []);
  const inner = (node.c ?? []).map((child) => element(child, depth + 1));
  if (node.t === "a") {
    const href = safeHref(node.href);
    return href === undefined || href.startsWith("/") ? el("span", {}, inner)
      : el("a", { href, rel: "noopener noreferrer nofollow external" }, inner);
  }
  if (!TAGS.has(node.t)) return el("span", {}, inner);
  if (node.t === "table") return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "table" }, el("table", {}, inner));
  return el(node.t, {
    start: node.t === "ol" && Number.isInteger(node.start) ? node.start : null,
    class: node.align === "right" || node.align === "center" ? node.align : null,
  }, inner);
}
