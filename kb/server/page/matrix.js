// Entries × devices: how each entry reaches each device, and what is proven there.

import { get } from "/api.js";
import { el, say } from "/dom.js";
import { home, KINDS, LEVELS, MEANING, short, spoken } from "/words.js";

const PAGE = 200;
const SIGNS = { exact: "=", recompile: "R", retune: "T", port: "P", technique: "i", none: "–" };
const SHOWN = ["NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA B200", "NVIDIA B300 SXM6 AC", "NVIDIA L40S", "NVIDIA GeForce RTX 5090", "AMD Instinct MI300X", "cpu"];

export async function show({ main, url, signal, go, wait }) {
  wait();
  const state = url.searchParams;
  const [known, hardware] = await Promise.all([get("/v1/facets", {}, signal), get("/v1/hardware", {}, signal)]);
  const all = [...hardware.items.flatMap((one) => one.device_names), "cpu"];
  const asked = state.getAll("device");
  const devices = asked.length ? asked : SHOWN.filter((name) => all.includes(name));
  const scope = { kind: state.get("kind"), operator: state.get("operator"), devices };
  const found = await get("/v1/matrix", { limit: PAGE, ...scope }, signal);
  document.title = "Matrix · kernel-kb";
  const body = el("tbody", {}, found.items.map(row));
  const count = el("p", { class: "count" }, `${found.items.length} of ${found.total} entries`);
  const more = el("div", { class: "more" });
  tail(found, body, more, count, signal);
  main.replaceChildren(el("div", { class: "page" },
    el("h1", { tabindex: "-1" }, "Entries × devices"),
    el("p", { class: "lead" }, "The letter says how an entry's code gets to a device; the steps say what is proven there. A level is counted on that very device alone."),
    legend(), controls(state, known, all, devices, go), count,
    found.items.length ? el("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Matrix" },
      el("table", { class: "matrix" }, el("caption", { class: "unseen" }, "How each entry reaches each device and what is proven there"),
        el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "entry"), found.devices.map((name) => el("th", { scope: "col", title: name }, short(name))))),
        body, el("tfoot", {}, total(found)))) : el("p", { class: "empty" }, "No entry fits. Choose another kind or operator."),
    more));
  say(`${found.total} entries on ${found.devices.length} devices`);
}

function tail(found, body, more, count, signal) {
  more.replaceChildren();
  if (!found.next) return;
  const button = el("button", { type: "button", on: { click: async () => {
    button.disabled = true;
    const next = await get(found.next, {}, signal);
    body.append(...next.items.map(row));
    count.textContent = `${body.children.length} of ${next.total} entries`;
    tail(next, body, more, count, signal);
  } } }, "Show more");
  more.append(button);
}

function row(one) {
  return el("tr", {}, el("th", { scope: "row" }, el("a", { href: home(one.id), "data-hit": one.id }, one.title), el("div", { class: "id" }, one.id)), one.cells.map(cell));
}

function cell(one) {
  const height = LEVELS.indexOf(one.evidence);
  const figures = one.measured?.speedup ? `, ${one.measured.speedup.toFixed(2)} times as fast as its baseline` : "";
  const state = one.freshness === "unknown" ? "" : `, ${one.freshness}`;
  const text = `${one.transfer}: ${MEANING[one.transfer]}; ${spoken(one.evidence)}${state}${figures}`;
  const old = ["stale", "refuted", "infeasible"].includes(one.freshness);
  return el("td", { class: `cell transfer-${one.transfer}`, title: text },
    el("span", { "aria-hidden": "true", class: "sign" }, SIGNS[one.transfer] ?? "?"),
    height > 0 ? el("span", { "aria-hidden": "true", class: old ? "pips old" : "pips" }, Array.from({ length: height }, () => el("i", {}))) : null,
    el("span", { class: "unseen" }, text));
}

function total(found) {
  return el("tr", {}, el("th", { scope: "row" }, "proven by the judge, whole store"), found.devices.map((name) => {
    const levels = found.levels[name] ?? {};
    return el("td", {}, String(LEVELS.slice(2).reduce((sum, level) => sum + (levels[level] ?? 0), 0)));
  }));
}

function legend() {
  return el("ul", { class: "legend wide" }, Object.entries(SIGNS).map(([word, sign]) =>
    el("li", {}, el("span", { class: `cell key transfer-${word}`, "aria-hidden": "true" }, sign), el("span", {}, el("strong", {}, word), ` ${MEANING[word]}`))),
  el("li", {}, el("span", { class: "pips", "aria-hidden": "true" }, el("i", {}), el("i", {})), el("span", {}, LEVELS.slice(1).map(spoken).join(" < "))));
}

function controls(state, known, all, devices, go) {
  const to = (changes) => {
    const next = new URLSearchParams(state);
    for (const [name, value] of Object.entries(changes)) {
      next.delete(name);
      for (const one of [value].flat()) if (one) next.append(name, one);
    }
    const text = next.toString();
    go(text ? `/matrix?${text}` : "/matrix");
  };
  const choose = (name, values) => {
    const select = el("select", { id: `matrix-${name}`, on: { change: () => to({ [name]: select.value }) } }, el("option", { value: "" }, "any"),
      values.map((value) => el("option", { value, selected: value === state.get(name) }, value)));
    return [el("label", { for: `matrix-${name}` }, name), select];
  };
  const boxes = all.map((name, at) => el("label", { class: "check" }, el("input", { type: "checkbox", id: `dev-${at}`, value: name, checked: devices.includes(name) }), name));
  const pick = el("button", { type: "button", on: { click: () => to({ device: boxes.map((box) => box.firstChild).filter((box) => box.checked).map((box) => box.value) }) } }, "Show these");
  return el("div", {}, el("p", { class: "row" }, choose("kind", KINDS), choose("operator", Object.keys(known.values.operator).sort())),
    el("details", { class: "data" }, el("summary", {}, `Devices: ${devices.length} of ${all.length}`), el("div", { class: "checks" }, boxes), el("p", { class: "row" }, pick)));
}
