// One target: what it is, which operators take its time, and the plan that the store has for it.

import { get, part } from "/api.js";
import { copier, el, styled } from "/dom.js";
import { axes, figure, home, ladder, percent, ratio, spoken, transferChip } from "/words.js";

export async function show({ main, id, url, signal, go, wait }) {
  wait();
  const [device, use] = [url.searchParams.get("device"), url.searchParams.get("use") === "research" ? "research" : "commercial"];
  const [found, known] = await Promise.all([part(id, "", {}, signal), get("/v1/facets", {}, signal)]);
  document.title = `${found.title} · kernel-kb`;
  const target = found.facts.target ?? {};
  const place = el("div", { "aria-busy": "true" }, el("p", { class: "loading" }, "Making the plan…"));
  const rows = el("div", {});
  main.replaceChildren(el("article", { class: "page" }, head(found, target, id),
    el("section", { "aria-labelledby": "time" }, el("h2", { id: "time" }, "Where the time goes"), shares(target), rows),
    el("section", { "aria-labelledby": "plan" }, el("h2", { id: "plan" }, "Seed plan"), controls(id, device, use, known, go), place)));
  rows.replaceChildren(operators(target, null, device));
  planned(place, rows, { id, target, device, use, signal });
}

async function planned(place, rows, { id, target, device, use, signal }) {
  try {
    const plan = await get(`/v1/targets/${id.split("/").slice(1).map(encodeURIComponent).join("/")}/plan`, { device, use }, signal);
    if (signal.aborted) return;
    place.replaceChildren(...drawn(plan).filter(Boolean));
    rows.replaceChildren(operators(target, plan.coverage, plan.device));
  } catch (error) {
    if (signal.aborted || error.name === "AbortError") return;
    if (!error.kind) console.error(error);
    place.replaceChildren(el("p", { class: "failure inline", role: "alert" }, error.message, error.hint ? [" Next: ", el("code", {}, error.hint)] : null));
  } finally {
    place.removeAttribute("aria-busy");
  }
}

function head(found, target, id) {
  const facts = [
    ["Model", target.model], ["Devices", target.devices ? `${target.device_count ?? 1} × ${target.devices.join(", ")}` : null], ["Precision", target.precision],
    ["Accuracy", target.accuracy],
    ["Goals", (target.goals ?? []).map((goal) => el("div", {}, `${spoken(goal.metric)}, ${goal.better} is better${goal.value ? `: ${figure(goal.value)}` : ""}${goal.against ? `, against ${goal.against}` : ""}${goal.traffic ? ` under ${goal.traffic}` : ""}`))],
    ["Traffic", (target.traffic ?? []).map((one) => el("div", {}, el("strong", {}, one.name), ` ${one.summary ?? ""}`))],
  ].filter(([, value]) => value && value.length !== 0);
  return el("header", { class: "entry-head" }, el("h1", { tabindex: "-1" }, found.title), el("p", { class: "lead" }, found.summary),
    el("p", { class: "command" }, el("code", {}, `kb seed ${id}`), copier(`kb seed ${id}`), el("a", { href: `/entry/${id}` }, "readme, versions, lineage")),
    el("dl", { class: "pairs" }, facts.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])));
}

function shares(target) {
  const rows = target.operators ?? [];
  const without = rows.filter((row) => row.share === undefined).length;
  return [target.share_basis ? el("p", { class: "soft" }, `Shares are ${target.share_basis}.`) : null,
    without ? el("p", { class: "soft" }, `${without} of ${rows.length} rows state no share.`) : null].filter(Boolean)
    .reduce((all, one) => { all.append(one); return all; }, el("div", {}));
}

function operators(target, coverage, device) {
  const offered = new Map((coverage ?? []).map((row) => [row.row, row]));
  const rows = [...(target.operators ?? [])].sort((a, b) => (b.share ?? -1) - (a.share ?? -1));
  if (!rows.length) return el("p", { class: "empty" }, "It lists no operators yet.");
  const most = Math.max(...rows.map((row) => row.share ?? 0), 1e-9);
  const family = target.devices?.[0] ?? device;
  const line = (row) => {
    const there = offered.get(row.name ?? row.operator);
    const bar = styled(el("span", { class: "bar own" }), { width: `${((100 * (row.share ?? 0)) / most).toFixed(2)}%` });
    const search = `/?operator=${encodeURIComponent(row.operator)}${family ? `&device=${encodeURIComponent(family)}` : ""}`;
    return el("tr", {}, el("th", { scope: "row" }, row.name ?? row.operator),
      el("td", { class: "share" }, el("span", { class: "bar-track", "aria-hidden": "true" }, bar), el("span", { class: "num" }, row.share === undefined ? "–" : percent(row.share))),
      el("td", {}, coverage === null ? "…" : there?.runnable.length ? el("span", { class: "chip transfer-recompile" }, `${there.runnable.length} run`) : el("span", { class: "chip transfer-none" }, "gap")),
      el("td", {}, el("a", { href: search }, row.operator)), el("td", { class: "num" }, figure(row.calls_per_step)),
      el("td", { class: "soft small" }, axes(row.axes)), el("td", { class: "small" }, (row.dtypes ?? []).join(", ")), el("td", { class: "small" }, row.share_from ?? "–"));
  };
  const table = (list) => el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Operators by share of time" },
    el("table", {}, el("caption", { class: "unseen" }, "Operators by share of time"),
      el("thead", {}, el("tr", {}, ["row", "share of time", "in the store", "operator", "calls a step", "axes", "dtypes", "share from"].map((one) => el("th", { scope: "col" }, one)))),
      el("tbody", {}, list.map(line))));
  if (rows.length <= 16) return table(rows);
  return el("div", {}, table(rows.slice(0, 12)), el("details", { class: "data" }, el("summary", {}, `${rows.length - 12} smaller rows`), table(rows.slice(12))));
}

function controls(id, device, use, known, go) {
  const to = () => {
    const next = new URLSearchParams();
    if (where.value) next.set("device", where.value);
    if (what.value !== "commercial") next.set("use", what.value);
    const text = next.toString();
    go(text ? `/${id}?${text}` : `/${id}`);
  };
  const names = Object.keys(known.values.device);
  const where = el("select", { id: "plan-device", on: { change: to } }, el("option", { value: "" }, "the target's own"),
    names.map((name) => el("option", { value: name, selected: name === device }, name)));
  const what = el("select", { id: "plan-use", on: { change: to } }, ["commercial", "research"].map((one) => el("option", { value: one, selected: one === use }, one)));
  return el("p", { class: "row" }, el("label", { for: "plan-device" }, "Device"), where, el("label", { for: "plan-use" }, "Use"), what);
}

function drawn(plan) {
  return [
    el("p", { class: "soft" }, `For ${plan.device}; `, plan.notes.join("; "), "."),
    plan.rows.length ? entries(plan.rows) : el("p", { class: "empty" }, "The store holds nothing that helps here yet."),
    plan.gaps.length ? el("div", {}, el("h3", {}, `Gaps: ${plan.gaps.length} rows with nothing that runs`), el("ul", { class: "plain" }, plan.gaps.map(gap))) : null,
    plan.warnings.length ? el("div", {}, el("h3", {}, "Warnings: what did not help others"), el("ul", { class: "plain" }, plan.warnings.map(warning))) : null,
    plan.excluded.length ? el("details", { class: "data" }, el("summary", {}, `${plan.excluded.length} left out, with reasons`),
      el("ul", { class: "plain" }, plan.excluded.map((one) => el("li", {}, el("a", { href: home(one.id) }, one.id), ` ${one.because}: ${one.reason}`)))) : null,
    el("details", { class: "data" }, el("summary", {}, `Brief for an agent, at most ${figure(plan.budget_tokens)} tokens`),
      el("div", { class: "with-copy" }, copier(plan.brief), el("pre", { class: "code wrapped", tabindex: "0" }, plan.brief))),
  ];
}

function entries(rows) {
  const line = (row) => el("tr", {}, el("td", { class: "num soft" }, row.rank),
    el("th", { scope: "row" }, el("a", { href: home(row.id), "data-hit": row.id }, row.title), el("div", { class: "id" }, row.id)),
    el("td", {}, row.row, row.also.length ? el("div", { class: "soft", title: row.also.join("\n") }, `and ${row.also.length} more`) : null),
    el("td", {}, transferChip(row.transfer)), el("td", {}, ladder(row.evidence, row.freshness)), el("td", { class: "num" }, percent(row.share)),
    el("td", { class: "num" }, row.gain ? [ratio(row.gain), row.gain_low ? el("div", { class: "soft" }, `${ratio(row.gain_low)}–${ratio(row.gain_high)}`) : null] : el("span", { class: "soft" }, "unknown")),
    el("td", { class: "num" }, percent(row.confidence)), el("td", {}, row.restrictions.length ? el("span", { class: "chip warn" }, row.restrictions.join(", ")) : row.license));
  const heads = ["#", "entry", "for", "transfer", "evidence", "share", "gain", "confidence", "license"];
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Ranked entries" },
    el("table", { class: "plan" }, el("caption", { class: "unseen" }, "Ranked entries"),
      el("thead", {}, el("tr", {}, heads.map((one) => el("th", { scope: "col", class: ["share", "gain", "confidence"].includes(one) ? "num" : null }, one)))), el("tbody", {}, rows.map(line))));
}

const gap = (one) => el("li", {}, el("strong", {}, one.row), ` ${one.operator}`, one.share ? `, ${percent(one.share)} of the time` : "", el("div", { class: "soft" }, one.reasons.join("; ")),
  one.nearest ? el("div", {}, "nearest: ", el("a", { href: home(one.nearest) }, one.nearest), " ", one.nearest_transfer ? transferChip(one.nearest_transfer) : null) : null);

const warning = (one) => el("li", {}, el("a", { href: home(one.id) }, one.title), el("div", {}, one.effect), el("div", { class: "soft" }, `When: ${one.condition}`));
