// Figures that others published: as curves or side by side, and always as a table with their source.

import { el, styled, table } from "/dom.js";
import { plot } from "/plot.js";
import { curves } from "/shapes.js";
import { figure, short, spoken, unit } from "/words.js";

const MOST_BARS = 24;
const HEADS = (name) => ["workload", "device", "what ran", { number: unit(name) }, "compared with", { number: unit(name) }, { number: "gain" }, "source"];

export function published(claims) {
  const metrics = [...new Set(claims.map((one) => `${one.metric}\u0000${one.unit}`))];
  return metrics.flatMap((key) => {
    const [metric, name] = key.split("\u0000");
    const mine = claims.filter((one) => one.metric === metric && one.unit === name);
    const { made, left } = curves(mine);
    return [...made.map((curve) => drawn(curve, metric, name)), left.length ? group(metric, name, left) : null].filter(Boolean);
  });
}

/** A metric without the unit at its end, which is said after it. */
function said(metric, name) {
  const words = spoken(metric);
  const end = ` ${name.replace("/", " per ")}`;
  return `${words.endsWith(end) ? words.slice(0, -end.length) : words}, ${unit(name)}`;
}

const row = (one) => [one.workload, one.device, one.backend ?? "–", { value: figure(one.value), number: true },
  one.baseline ?? "–", { value: figure(one.baseline_value), number: true }, { value: gained(one), number: true }, one.source];

const gained = (one) => (one.speedup ? `${figure(one.speedup)}×` : one.gain_percent ? `${figure(one.gain_percent)} % ${one.gain_kind}` : "–");

function drawn(curve, metric, name) {
  const several = new Set(curve.series.map((one) => one.device)).size > 1;
  const claims = [...new Set(curve.series.flatMap((one) => one.points.map((point) => point.claim)))];
  return plot({
    title: `${said(metric, name)} against ${curve.axis}: ${curve.about}${several ? "" : `, on ${short(curve.series[0].device)}`}`,
    x: { label: curve.axis, atValues: true }, y: { label: said(metric, name) },
    series: curve.series.map((one, tone) => ({
      name: several ? `${one.name} on ${short(one.device)}` : one.name, tone, line: true, hollow: true,
      points: one.points.map(({ x, y, claim }) => ({ x, y, tip: [`${curve.axis} ${figure(x)}`, `${figure(y)} ${unit(name)}, published`, claim.source] })),
    })),
    heads: HEADS(name), rows: claims.map(row),
  });
}

function group(metric, name, claims) {
  const title = `${said(metric, name)}: ${claims[0].better} is better`;
  return el("figure", { class: "figure" }, el("figcaption", {}, title), bars(claims, name),
    el("details", { class: "data" }, el("summary", {}, "Numbers and sources"), table(title, HEADS(name), claims.map(row), { hideCaption: true })));
}

/** One bar a figure, grouped by workload and device; lengths are linear from zero, so that they compare. */
function bars(claims, name) {
  const groups = new Map();
  for (const one of claims.slice(0, MOST_BARS)) {
    const key = `${one.workload} · ${short(one.device)}`;
    const here = groups.get(key) ?? [];
    here.push({ label: one.backend ?? "this", value: one.value, own: true });
    if (one.baseline_value) here.push({ label: one.baseline, value: one.baseline_value });
    groups.set(key, here);
  }
  const left = claims.length - MOST_BARS;
  return el("div", { class: "bars" }, [...groups].map(([key, list]) => {
    const most = Math.max(...list.map((one) => one.value));
    return el("div", { class: "bar-group" }, el("div", { class: "bar-title" }, key), list.map((one) =>
      el("div", { class: "bar-row" }, el("span", { class: "bar-label" }, one.label),
        el("span", { class: "bar-track", "aria-hidden": "true" }, styled(el("span", { class: one.own ? "bar own" : "bar" }), { width: `${((100 * one.value) / most).toFixed(2)}%` })),
        el("span", { class: "num" }, `${figure(one.value)} ${unit(name)}`))));
  }), left > 0 ? el("p", { class: "soft" }, `${left} more in the table`) : null);
}
