// Where an entry comes from and what came of it, as a layered graph and as a list.

import { part } from "/api.js";
import { el, svg, table } from "/dom.js";
import { home, spoken } from "/words.js";

const [WIDE, TALL, GAP_X, GAP_Y] = [196, 42, 64, 14];
const MOST = 40;

export async function lineage(context) {
  const place = el("div", {});
  const field = el("select", { id: "steps", on: { change: () => draw(Number(field.value)) } },
    [1, 2, 3].map((steps) => el("option", { value: steps }, `${steps} step${steps > 1 ? "s" : ""}`)));
  const draw = async (depth) => place.replaceChildren(...pictured(context.id, await part(context.id, "lineage", { depth }, context.signal)));
  const whole = await part(context.id, "lineage", { depth: 1 }, context.signal);
  place.replaceChildren(...pictured(context.id, whole));
  if (whole.nodes.length < 2) return place;
  return [el("p", { class: "row" }, el("label", { for: "steps" }, "As far as"), field), place];
}

function pictured(id, { nodes, edges, complete }) {
  if (nodes.length < 2) return [el("p", { class: "empty" }, "Nothing is known to have come before it or after it.")];
  const kept = nodes.slice(0, MOST);
  const names = new Set(kept.map((node) => node.id));
  const drawn = edges.filter((edge) => names.has(edge.source) && names.has(edge.target));
  const left = nodes.length - kept.length;
  const rows = edges.map((edge) => [link(edge.source), spoken(edge.relation), link(edge.target)]);
  const frame = el("div", { class: "scroll graph", tabindex: "0", role: "region", "aria-label": "Lineage graph" }, graph(id, kept, drawn));
  // Where there is more than fits, one begins at the entry itself.
  requestAnimationFrame(() => {
    const here = frame.querySelector(".here")?.getBoundingClientRect();
    const box = frame.getBoundingClientRect();
    if (here) frame.scrollTo(here.x - box.x - (box.width - here.width) / 2, here.y - box.y - (box.height - here.height) / 2);
  });
  return [
    frame,
    left > 0 || !complete ? el("p", { class: "soft" }, left > 0 ? `${left} more are in the list.` : "There is more than is shown.") : null,
    el("details", { class: "data" }, el("summary", {}, "As a list"), table("Lineage", ["from", "relation", "to"], rows, { hideCaption: true })),
  ].filter(Boolean);
}

const link = (id) => el("a", { href: home(id) }, id);

/** Node to column: one after all that it came from; a ring of ancestry ends at the number of nodes. */
function columns(nodes, edges) {
  const at = new Map(nodes.map((node) => [node.id, 0]));
  for (let round = 0; round < nodes.length; round += 1) {
    let moved = false;
    for (const { source, target } of edges) {
      const next = at.get(source) + 1;
      if (source !== target && next > at.get(target) && next < nodes.length) {
        at.set(target, next);
        moved = true;
      }
    }
    if (!moved) break;
  }
  const used = [...new Set(at.values())].sort((a, b) => a - b);
  return new Map([...at].map(([id, column]) => [id, used.indexOf(column)]));
}

/** Order within columns so that few lines cross: each node near the middle of its neighbours, a few times over. */
function ordered(nodes, edges, column) {
  const count = Math.max(...column.values()) + 1;
  const layers = Array.from({ length: count }, () => []);
  for (const node of nodes) layers[column.get(node.id)].push(node.id);
  const place = new Map();
  const settle = () => layers.forEach((layer) => layer.forEach((id, row) => place.set(id, row - layer.length / 2)));
  settle();
  for (let round = 0; round < 6; round += 1) {
    for (const layer of layers) {
      const middle = new Map(layer.map((id) => {
        const near = edges.flatMap((edge) => (edge.source === id ? [edge.target] : edge.target === id ? [edge.source] : [])).map((one) => place.get(one));
        return [id, near.length ? near.reduce((a, b) => a + b, 0) / near.length : place.get(id)];
      }));
      layer.sort((a, b) => middle.get(a) - middle.get(b) || (a < b ? -1 : 1));
      settle();
    }
  }
  return layers;
}

function graph(id, nodes, edges) {
  const layers = ordered(nodes, edges, columns(nodes, edges));
  const most = Math.max(...layers.map((layer) => layer.length));
  const height = most * (TALL + GAP_Y) + GAP_Y;
  const width = layers.length * (WIDE + GAP_X) - GAP_X + 4;
  const spot = new Map();
  layers.forEach((layer, x) => layer.forEach((one, y) => spot.set(one, {
    x: x * (WIDE + GAP_X) + 2, y: (height - layer.length * (TALL + GAP_Y) + GAP_Y) / 2 + y * (TALL + GAP_Y),
  })));
  const arrow = svg("defs", {}, svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" }, svg("path", { d: "M0 0L8 4L0 8z", class: "head" })));
  const lines = edges.map((edge) => {
    const [from, to] = [spot.get(edge.source), spot.get(edge.target)];
    const [x1, y1, x2, y2] = [from.x + WIDE, from.y + TALL / 2, to.x - 3, to.y + TALL / 2];
    const bend = Math.max(28, Math.abs(x2 - x1) / 2);
    const near = edge.source === id || edge.target === id;
    return svg("g", { class: near ? "edge near" : "edge" },
      svg("path", { d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`, "marker-end": "url(#arrow)" }, svg("title", {}, `${edge.source} → ${spoken(edge.relation)} → ${edge.target}`)));
  });
  const boxes = nodes.map((node) => box(node, spot.get(node.id), node.id === id));
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": `${nodes.length} entries, ${edges.length} relations` }, arrow, lines, boxes);
}

function box(node, { x, y }, here) {
  const [, topic, slug] = node.id.split("/");
  const made = svg("g", { class: `box${here ? " here" : ""}${node.missing ? " missing" : ""}${node.outcome && node.outcome !== "works" ? " negative" : ""}`, transform: `translate(${x} ${y})` },
    svg("rect", { width: WIDE, height: TALL, rx: 6 }), svg("title", {}, node.missing ? `${node.id}: not in this store` : `${node.title}\n${node.id}`),
    svg("text", { x: 10, y: 17 }, cut(slug ?? node.id, 25)), svg("text", { x: 10, y: 32, class: "soft" }, cut(`${node.kind} · ${topic ?? ""}`, 32)));
  return node.missing || here ? made : svg("a", { href: home(node.id), "aria-label": `${node.title}, ${node.id}` }, made);
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
