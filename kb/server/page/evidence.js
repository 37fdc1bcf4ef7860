// What is proven of an entry, where, with which toolchain, how fresh that is, and what would raise it.

import { part, recordPath } from "/api.js";
import { copier, el } from "/dom.js";
import { chip, day, figure, ladder, percent, ratio, spoken, transferChip } from "/words.js";

const HEADS = ["device", "evidence", "freshness", "figures", "toolchain", "records", "next step"];

export async function evidence({ id, signal, version }) {
  const found = await part(id, "evidence", {}, signal);
  const lines = found.lines.map((line) => row(line));
  return [
    version ? el("p", { class: "note" }, `Records lie with the present version, ${found.version}; this is what they say of it.`) : null,
    found.lines.every((line) => !line.records.length)
      ? el("p", { class: "empty" }, "No record by the judge yet: nothing here was measured by this store. What stands below is as its authors say it.") : null,
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Evidence" },
      el("table", { class: "evidence" }, el("caption", { class: "unseen" }, "Evidence by device"),
        el("thead", {}, el("tr", {}, HEADS.map((head) => el("th", { scope: "col" }, head)))),
        el("tbody", {}, lines))),
    against(found.against),
    found.ignored.length ? el("details", { class: "data" }, el("summary", {}, `${found.ignored.length} records count for nothing`),
      el("ul", { class: "plain" }, found.ignored.map((one) => el("li", {}, one)))) : null,
  ];
}

function row(line) {
  return el("tr", {},
    el("th", { scope: "row" }, line.device, line.transfer ? el("div", {}, transferChip(line.transfer)) : null),
    el("td", {}, ladder(line.level, line.freshness), line.regime ? el("div", { class: "soft" }, spoken(line.regime)) : null),
    el("td", {}, chip(line.freshness, "fresh"), line.reasons.map((reason) => el("div", { class: "soft" }, reason))),
    el("td", { class: "num" }, line.figures.length ? several(line.figures) : el("span", { class: "soft" }, "–")),
    el("td", {}, Object.keys(line.toolchain).length ? Object.entries(line.toolchain).map(([name, value]) => el("div", {}, el("span", { class: "soft" }, `${spoken(name)} `), value)) : el("span", { class: "soft" }, "–")),
    el("td", {}, line.records.length ? line.records.map((record) => el("div", { class: "nowrap" }, el("a", { href: recordPath(record), title: record }, day(record.split("/records/")[1])))) : el("span", { class: "soft" }, "none"),
      line.when ? el("div", { class: "soft nowrap" }, `of version ${line.version}`) : null),
    el("td", {}, line.next_step ? (line.next_step.startsWith("kb ") ? [el("code", {}, line.next_step), " ", copier(line.next_step)] : el("span", { class: "soft" }, line.next_step)) : "–"));
}

const FEW = 3;

function several(figures) {
  const rest = figures.slice(FEW);
  return [figures.slice(0, FEW).map(one), rest.length ? el("details", { class: "data" }, el("summary", {}, `${rest.length} more`), rest.map(one)) : null];
}

function one(given) {
  if (typeof given === "string") return el("div", {}, given);
  const value = given.median_us ?? given.latency_us ?? given.value ?? null;
  return el("div", { class: "figure-line" },
    value === null ? null : `${figure(value)} ${given.unit ?? "µs"}`, given.ratio ? [" · ", el("strong", {}, ratio(given.ratio))] : null,
    given.roofline ? ` · ${percent(given.roofline)} of the roof` : null,
    el("div", { class: "soft" }, [given.workload, given.baseline && `against ${given.baseline}`].filter((text) => typeof text === "string").join(", ")));
}

function against(held) {
  const named = Object.entries(held ?? {}).filter(([, chain]) => Object.keys(chain).length);
  if (!named.length) return null;
  return el("details", { class: "data" }, el("summary", {}, "What records are held against"),
    el("ul", { class: "plain" }, named.map(([device, chain]) => el("li", {}, `${device}: `,
      Object.entries(chain).map(([name, value]) => `${spoken(name)} ${value}`).join(", ")))));
}
