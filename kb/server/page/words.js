// How values are shown: the store's vocabulary with what each word means, and figures with their units.

import { el } from "/dom.js";

export const LEVELS = ["documented", "reported", "correct", "measured", "confirmed", "end_to_end"];
export const RUNS = ["exact", "recompile", "retune"];
export const KINDS = ["kernel", "allocation", "comm", "config", "technique", "combination", "target", "campaign"];

export const MEANING = {
  exact: "measured on this very device",
  recompile: "its code runs there once it is compiled",
  retune: "its code runs there; its parameters were tuned elsewhere",
  port: "its code does not run there; its idea does, with other instructions",
  technique: "only the idea carries over",
  none: "nothing carries over",
  documented: "written down, not measured by anyone named",
  reported: "somebody published a figure",
  correct: "our judge accepted its values",
  measured: "our judge timed it",
  confirmed: "an independent run agrees",
  end_to_end: "the whole model was judged",
  fresh: "what was proven still holds",
  stale: "something it depends on has changed since",
  refuted: "a later record contradicts it",
  infeasible: "it cannot run there",
  unknown: "no record yet",
  works: "it does what it says",
  regression: "it made things slower or larger",
  no_effect: "it changed nothing that could be measured",
  incorrect: "its values are wrong",
  inconclusive: "the result does not decide",
};

export const spoken = (word) => String(word ?? "").replaceAll("_", " ");

/** A word with its meaning in a tooltip. */
export const chip = (word, family, extra = "") =>
  el("span", { class: `chip ${family}-${word} ${extra}`, title: MEANING[word] ?? null }, spoken(word));

/** The ladder of evidence: as many steps as the level is high, and its name. */
export function ladder(level, freshness) {
  const height = LEVELS.indexOf(level);
  const old = freshness === "stale" || freshness === "refuted";
  return el("span", { class: `ladder${old ? " old" : ""}`, title: `evidence: ${MEANING[level] ?? ""}` },
    el("span", { class: "steps", "aria-hidden": "true" }, LEVELS.map((_, at) => el("i", { class: at <= height ? "on" : null }))),
    el("span", {}, spoken(level)));
}

export const transferChip = (word) =>
  el("span", { class: `chip transfer-${word}`, title: MEANING[word] ?? null },
    RUNS.includes(word) ? "runs · " : "", word);

const PLAIN = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** A figure with four digits at most; very large and small ones with a power of ten. */
export function figure(value) {
  if (value === null || value === undefined || !Number.isFinite(Number(value))) return "–";
  const number = Number(value);
  const size = Math.abs(number);
  if (number !== 0 && (size >= 1e9 || size < 1e-3)) return number.toExponential(2).replace("e+", "e");
  return Number.isInteger(number) ? WHOLE.format(number) : PLAIN.format(number);
}

export const percent = (value) => (value === null || value === undefined ? "–" : `${figure(Math.round(value * 1e4) / 100)} %`);
export const ratio = (value) => (value === null || value === undefined ? "–" : `${Number(value).toFixed(2)}×`);
export const unit = (name) => ({ us: "µs", ms: "ms" })[name] ?? name;
export const axes = (given) => Object.entries(given ?? {}).map(([name, value]) => `${name} ${figure(value)}`).join(" · ");
export const day = (utc) => (utc ? String(utc).slice(0, 10) : "–");

/** A device's name without what every name has. */
export const short = (device) => String(device).replace(/^(NVIDIA|AMD Instinct|GeForce)\s+/, "").replace(/^GeForce /, "")
  .replace("RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000");

/** The figure to show for an entry, in one line. */
export function best(found) {
  if (!found) return null;
  const gain = found.speedup ? el("strong", { class: found.speedup < 1 ? "loss" : null }, ratio(found.speedup)) : null;
  const against = found.speedup && found.baseline ? ` against ${found.baseline}` : "";
  return el("span", { class: "best", title: [found.workload, found.device, found.source].filter(Boolean).join("\n") },
    gain, gain ? " · " : null, `${figure(found.value)} ${unit(found.unit)}`,
    el("span", { class: "soft" }, against, found.device ? ` on ${short(found.device)}` : "", found.source ? " (published)" : ""));
}

export const home = (id) => (id.startsWith("target/") ? `/${id}` : `/entry/${id}`);
