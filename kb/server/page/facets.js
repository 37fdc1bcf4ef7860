// The filters beside a search: what there is, how many of each, and which are on.

import { el } from "/dom.js";
import { KINDS, LEVELS, MEANING, spoken } from "/words.js";

export const FILTERS = ["device", "runs", "kind", "family", "operator", "dtype", "language", "evidence", "outcome"];
const SHOWN = 8;
const opened = new Set();

/** The filters of an address as the server takes them: a family is asked for as an operator. */
export function chosen(state) {
  const found = Object.fromEntries(FILTERS.map((name) => [name, state.get(name)]));
  found.operator ??= found.family;
  delete found.family;
  if (found.runs !== "true") delete found.runs;
  return found;
}

/** The elements of all facets. `change` is told which filters become what. */
export function facets(state, counts, all, change) {
  const active = FILTERS.filter((name) => name !== "runs" && state.get(name));
  const clear = el("button", { type: "button", class: "clear", on: { click: () => change(Object.fromEntries(FILTERS.map((name) => [name, null]))) } },
    `Clear ${active.length === 1 ? "filter" : `${active.length} filters`}`);
  const group = (name, title, order) => choice({ name, title, state, counts, order, known: all.values[name] ?? {}, change });
  return [
    active.length ? clear : null,
    devices(state, all, change),
    group("kind", "Kind", KINDS),
    group("family", "Operator family"),
    operators(state, counts, all, change),
    group("dtype", "Dtype"),
    group("language", "Language"),
    group("evidence", "Evidence, at least", LEVELS),
    group("outcome", "Outcome"),
  ].filter(Boolean);
}

function choice({ name, title, state, counts, order, known, change }) {
  const on = state.get(name);
  const here = name === "evidence" ? atLeast(counts?.evidence ?? {}) : counts?.[name] ?? {};
  const values = [...new Set([...(order ?? []), ...Object.keys(here), ...Object.keys(known), ...(on ? [on] : [])])]
    .filter((value) => value === on || here[value] || (on && known[value]));
  if (!order) values.sort((a, b) => (here[b] ?? 0) - (here[a] ?? 0) || (known[b] ?? 0) - (known[a] ?? 0) || (a < b ? -1 : 1));
  if (!values.length) return null;
  const wide = opened.has(name);
  const shown = wide ? values : values.filter((value, at) => at < SHOWN || value === on);
  const button = (value) => el("button", {
    type: "button", class: "value", "aria-pressed": String(value === on), title: MEANING[value] ?? null, "data-facet": `${name}=${value}`,
    on: { click: () => change({ [name]: value === on ? null : value, ...(name === "family" ? { operator: null } : {}) }) },
  }, el("span", {}, spoken(value)), el("span", { class: "n" }, here[value] ?? ""));
  const list = el("div", { class: "values" }, shown.map(button));
  if (shown.length < values.length) {
    list.append(el("button", { type: "button", class: "value all", on: { click: () => {
      opened.add(name);
      list.replaceChildren(...values.map(button));
    } } }, `${values.length - shown.length} more`));
  }
  return el("fieldset", {}, el("legend", {}, title), list);
}

/** Entries with at least each level: what one gets by choosing it. */
function atLeast(counts) {
  let sum = 0;
  return Object.fromEntries([...LEVELS].reverse().map((level) => [level, (sum += counts[level] ?? 0)]));
}

function operators(state, counts, all, change) {
  const on = state.get("operator");
  const here = counts?.operator ?? {};
  const names = Object.keys(all.values.operator).sort();
  const option = (name) => el("option", { value: name, selected: name === on }, here[name] ? `${name} (${here[name]})` : name);
  const present = names.filter((name) => here[name]);
  const select = el("select", { id: "operator", "data-facet": "operator", on: { change: () => change({ operator: select.value, family: null }) } },
    el("option", { value: "" }, "any"),
    on && !here[on] ? option(on) : null,
    present.map(option),
    on ? el("optgroup", { label: "others" }, names.filter((name) => !here[name] && name !== on).map(option)) : null);
  return el("div", { class: "field" }, el("label", { for: "operator" }, "Operator"), select);
}

function devices(state, all, change) {
  const on = state.get("device");
  const names = Object.keys(all.values.device);
  const is = (name) => /^(sm_|gfx|cpu)/.test(name);
  const full = names.filter((name) => /^(NVIDIA|AMD)/.test(name));
  const family = names.filter((name) => !is(name) && !full.includes(name));
  const option = (name) => el("option", { value: name, selected: name === on }, name);
  const select = el("select", { id: "device", "data-facet": "device", on: { change: () => change({ device: select.value }) } },
    el("option", { value: "" }, "any"),
    on && !names.includes(on) ? option(on) : null,
    el("optgroup", { label: "Families and products" }, family.map(option)),
    el("optgroup", { label: "Devices" }, full.map(option)),
    el("optgroup", { label: "Architectures" }, names.filter(is).map(option)));
  const runs = el("input", { type: "checkbox", id: "runs", "data-facet": "runs", checked: state.get("runs") === "true", disabled: !on,
    on: { change: () => change({ runs: runs.checked ? "true" : null }) } });
  return el("div", { class: "field" }, el("label", { for: "device" }, "Device"), select,
    el("label", { class: "check" }, runs, "only what runs there"));
}
