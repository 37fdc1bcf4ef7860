// Plots as inline SVG: log axes with units, series told apart by colour and shape, a tooltip that the mouse and the
// arrow keys move, and the same numbers as a table below.

import { el, say, styled, svg, table } from "/dom.js";
import { atValues, logarithmic, spaced } from "/scales.js";
import { figure } from "/words.js";

const EDGE = { top: 14, right: 14, bottom: 44, left: 58 };
const SHAPES = [
  (r) => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`,
  (r) => `M${-r} ${-r}h${2 * r}v${2 * r}h${-2 * r}z`,
  (r) => `M0 ${-r * 1.25}L${r * 1.15} ${r * 0.85}H${-r * 1.15}z`,
  (r) => `M0 ${-r * 1.3}L${r * 1.3} 0L0 ${r * 1.3}L${-r * 1.3} 0z`,
];

/**
 * A plot. `spec` has title, x and y ({label, name}), and series: name, points ({x, y, low, high, tip, hollow}), and
 * optionally line (joined), dashed, dotted, quiet (a line without points). `rows` and `heads` are the table below.
 */
export function plot(spec) {
  const place = el("div", { class: "plot" });
  const tip = el("div", { class: "tip", hidden: true });
  const figureBox = el("figure", { class: "figure" }, el("figcaption", {}, spec.title), legend(spec), place, tip,
    el("details", { class: "data" }, el("summary", {}, "Numbers"), table(spec.title, spec.heads, spec.rows, { hideCaption: true })));
  let width = 0;
  new ResizeObserver(() => {
    const now = Math.floor(place.clientWidth);
    if (now < 40 || now === width) return;
    width = now;
    place.replaceChildren(draw(spec, width, tip));
  }).observe(place);
  return figureBox;
}

const tone = (series, at) => `tone-${(series.tone ?? at) % 8}`;

function legend(spec) {
  return el("ul", { class: "legend" }, spec.series.filter((one) => one.points.length).map((one) => {
    const at = spec.series.indexOf(one);
    return el("li", {}, svg("svg", { width: 26, height: 12, "aria-hidden": "true", class: tone(one, at) },
      one.line || one.quiet ? svg("path", { d: "M0 6H26", class: stroke(one) }) : null,
      one.quiet ? null : svg("path", { d: SHAPES[(one.tone ?? at) % 4](4), transform: "translate(13 6)", class: one.hollow ? "dot hollow" : "dot" })), one.name);
  }));
}

const stroke = (series) => `line${series.dashed ? " dashed" : ""}${series.dotted ? " dotted" : ""}`;

function draw(spec, width, tip) {
  const height = Math.max(230, Math.min(360, Math.round(width * 0.5)));
  const edge = { ...EDGE, left: width < 480 ? 46 : EDGE.left };
  const all = spec.series.flatMap((one) => one.points);
  const xs = all.map((one) => one.x);
  const ys = all.flatMap((one) => [one.y, one.low, one.high]).filter((value) => value > 0);
  let across = logarithmic(xs, edge.left, width - edge.right);
  if (spec.x.atValues) across = atValues(across, spec.series.filter((one) => !one.quiet).flatMap((one) => one.points.map((point) => point.x)));
  const up = logarithmic(ys, height - edge.bottom, edge.top);
  const shown = [];
  const marks = spec.series.map((one, at) => series(one, at, across, up, shown));
  const cross = svg("path", { class: "cross", d: "" });
  const drawing = svg("svg", {
    viewBox: `0 0 ${width} ${height}`, width, height, tabindex: "0", role: "group",
    "aria-roledescription": "plot", "aria-label": `${spec.title}. ${spec.y.label} against ${spec.x.label}. Arrow keys read the points; the numbers are in a table below.`,
  }, grid(spec, across, up, { width, height, edge }), marks, cross);
  live(drawing, shown, cross, tip, { width, height, edge });
  return drawing;
}

function grid(spec, across, up, { width, height, edge }) {
  const floor = height - edge.bottom;
  return svg("g", { class: "grid", "aria-hidden": "true" },
    spaced(across, 44).map((tick) => [
      svg("path", { d: `M${across.at(tick).toFixed(1)} ${edge.top}V${floor}` }),
      svg("text", { x: across.at(tick).toFixed(1), y: floor + 16, "text-anchor": "middle" }, figure(tick)),
    ]),
    spaced(up, 20).map((tick) => [
      svg("path", { d: `M${edge.left} ${up.at(tick).toFixed(1)}H${width - edge.right}` }),
      svg("text", { x: edge.left - 7, y: (up.at(tick) + 4).toFixed(1), "text-anchor": "end" }, figure(tick)),
    ]),
    svg("path", { class: "axis", d: `M${edge.left} ${edge.top}V${floor}H${width - edge.right}` }),
    svg("text", { class: "label", x: (edge.left + width - edge.right) / 2, y: height - 8, "text-anchor": "middle" }, spec.x.label),
    svg("text", { class: "label", transform: `translate(12 ${(edge.top + floor) / 2}) rotate(-90)`, "text-anchor": "middle" }, spec.y.label));
}

function series(one, at, across, up, shown) {
  const points = one.points.filter((point) => point.x > 0 && point.y > 0).sort((a, b) => a.x - b.x);
  const placed = points.map((point) => [across.at(point.x).toFixed(1), up.at(point.y).toFixed(1)]);
  const made = [];
  if ((one.line || one.quiet) && placed.length > 1) made.push(svg("path", { class: stroke(one), d: `M${placed.map((pair) => pair.join(" ")).join("L")}` }));
  if (!one.quiet) {
    points.forEach((point, index) => {
      const [x, y] = placed[index];
      if (point.low > 0 && point.high > 0) made.push(svg("path", { class: "whisker", d: `M${x} ${up.at(point.low).toFixed(1)}V${up.at(point.high).toFixed(1)}` }));
      made.push(svg("path", { class: point.hollow || one.hollow ? "dot hollow" : "dot", "data-point": "", d: SHAPES[(one.tone ?? at) % 4](4.2), transform: `translate(${x} ${y})` }));
      shown.push({ x: Number(x), y: Number(y), name: one.name, lines: point.tip });
    });
  }
  return svg("g", { class: `${tone(one, at)} series` }, made);
}

function live(drawing, shown, cross, tip, { width, height, edge }) {
  shown.sort((a, b) => a.x - b.x || a.y - b.y);
  let at = -1;
  const point = (index) => {
    at = index;
    const one = shown[index];
    cross.setAttribute("d", `M${one.x} ${edge.top}V${height - edge.bottom}M${edge.left} ${one.y}H${width - edge.right}`);
    tip.replaceChildren(el("strong", {}, one.name), ...one.lines.map((line) => el("div", {}, line)));
    tip.hidden = false;
    const box = drawing.parentNode;
    styled(tip, {
      left: `${Math.max(0, Math.min(one.x + 12, width - tip.offsetWidth - 4)) + box.offsetLeft}px`,
      top: `${box.offsetTop + Math.max(0, one.y - tip.offsetHeight - 12)}px`,
    });
    return one;
  };
  const off = () => { at = -1; tip.hidden = true; cross.setAttribute("d", ""); };
  drawing.addEventListener("pointermove", (event) => {
    const frame = drawing.getBoundingClientRect();
    const far = shown.map((one) => Math.hypot(one.x - (event.clientX - frame.x), one.y - (event.clientY - frame.y)));
    const near = far.indexOf(Math.min(...far));
    if (far[near] < 40) point(near);
    else off();
  });
  drawing.addEventListener("pointerleave", off);
  drawing.addEventListener("blur", off);
  drawing.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") off();
    if (!step || !shown.length) return;
    event.preventDefault();
    const one = point((at + step + shown.length) % shown.length);
    say(`${one.name}: ${one.lines.join(", ")}`);
  });
}
