// The figures of an entry: latency against shape, the roofline, memory, and what others published.

import { get, part } from "/api.js";
import { el, table } from "/dom.js";
import { plot } from "/plot.js";
import { published } from "/published.js";
import { axes, day, figure, percent, ratio, short, spoken } from "/words.js";

const MOST_SERIES = 7;

export async function figures({ id, signal }) {
  const found = await part(id, "figures", {}, signal);
  const counted = found.timings.filter((one) => !one.quarantined);
  const made = [];
  if (counted.length) made.push(el("h3", {}, "Latency against shape"), latency(counted));
  else made.push(nothing(id, found));
  const drawn = counted.length ? await roofline(counted, found.peaks, signal) : [];
  if (drawn.length) made.push(el("h3", {}, "Roofline"), ...drawn);
  if (found.memory.length) made.push(el("h3", {}, "Memory"), memory(found.memory));
  if (found.claims.length) made.push(el("h3", {}, "Published figures"), ...published(found.claims));
  const apart = found.timings.length - counted.length;
  if (apart) made.push(el("p", { class: "note" }, `${apart} timings are faster than the machine can be and are kept apart until somebody looks at them.`));
  for (const one of found.unread) made.push(el("p", { class: "note" }, `A record cannot be read: ${one}`));
  return made;
}

function nothing(id, found) {
  return el("div", { class: "empty" },
    el("p", {}, "No measurements yet. ", found.claims.length ? "What others published stands below; this store has not repeated it." : "Nobody has timed this entry with the judge, so there is nothing to draw."),
    found.claims.length || !/^(kernel|allocation|comm|config|combination)\//.test(id) ? null
      : el("p", {}, "On a machine that has the device: ", el("code", {}, `kb validate ${id}`)));
}

const varying = (rows) => {
  const values = {};
  for (const row of rows) for (const [name, value] of Object.entries(row.axes)) (values[name] ??= new Set()).add(value);
  return Object.entries(values).filter(([, set]) => set.size > 1).sort((a, b) => b[1].size - a[1].size || (a[0] < b[0] ? -1 : 1)).map(([name]) => name);
};

function newest(rows) {
  const kept = new Map();
  for (const row of rows) {
    const key = JSON.stringify([row.device, row.dtype, row.cache, row.launch, row.law, Object.entries(row.axes).sort()]);
    if (!kept.has(key) || kept.get(key).when < row.when) kept.set(key, row);
  }
  return [...kept.values()];
}

const HEADS = ["device", "shape", "dtype", "regime", { number: "median µs" }, { number: "p10–p90 µs" }, "baseline", { number: "baseline µs" },
  { number: "speed-up" }, { number: "floor µs" }, { number: "of the roof" }, "date"];
const number = (value) => ({ value, number: true });

const cells = (row) => [row.device, axes(row.axes), row.dtype, `${row.cache}, ${row.launch}`, number(figure(row.median_us)),
  number(`${figure(row.p10_us)}–${figure(row.p90_us)}`), row.baseline ?? "–", number(figure(row.baseline_us)), number(ratio(row.ratio)),
  number(figure(row.floor_us)), number(percent(row.roofline)), day(row.when)];

/** Median latency with its spread, the baseline and the floor, against one axis that one may choose. */
function latency(timings) {
  const rows = newest(timings);
  const names = varying(rows);
  const place = el("div", {});
  const draw = (axis) => place.replaceChildren(plot(spec(rows, axis)));
  const first = names[0] ?? Object.keys(rows[0].axes)[0];
  const select = el("select", { id: "axis", on: { change: () => draw(select.value) } }, names.map((name) => el("option", { value: name }, spoken(name))));
  draw(first);
  return el("div", {}, names.length > 1 ? el("p", { class: "row" }, el("label", { for: "axis" }, "Against"), select) : null, place);
}

function spec(rows, axis) {
  const groups = new Map();
  const others = varying(rows).filter((name) => name !== axis);
  const several = (name) => new Set(rows.map((row) => row[name])).size > 1;
  for (const row of rows) {
    if (!(row.axes[axis] > 0)) continue;
    const label = [short(row.device), several("dtype") && row.dtype, (several("cache") || several("launch")) && `${row.cache}, ${row.launch}`,
      several("law") && row.law, ...others.map((name) => `${spoken(name)} ${figure(row.axes[name])}`)].filter(Boolean).join(" · ");
    groups.set(label, [...(groups.get(label) ?? []), row]);
  }
  const ordered = [...groups].sort((a, b) => b[1].length - a[1].length || (a[0] < b[0] ? -1 : 1));
  const series = ordered.slice(0, MOST_SERIES).flatMap(([label, group], tone) => [
    { name: label, tone, line: true, points: group.map((row) => ({ x: row.axes[axis], y: row.median_us, low: row.p10_us, high: row.p90_us, tip: told(row, axis) })) },
    { name: `${label}: ${[...new Set(group.map((row) => row.baseline))].filter(Boolean).join(", ") || "baseline"}`, tone, line: true, dashed: true, hollow: true,
      points: group.filter((row) => row.baseline_us).map((row) => ({ x: row.axes[axis], y: row.baseline_us, tip: [`${spoken(axis)} ${figure(row.axes[axis])}`, `${figure(row.baseline_us)} µs`] })) },
    { name: `${label}: floor`, tone, quiet: true, dotted: true, points: group.filter((row) => row.floor_us).map((row) => ({ x: row.axes[axis], y: row.floor_us })) },
  ]);
  const left = ordered.length - MOST_SERIES;
  return {
    title: `Latency against ${spoken(axis)}${left > 0 ? `; ${left} further series are in the table` : ""}`,
    x: { label: spoken(axis), atValues: true }, y: { label: "latency, µs" }, series, heads: HEADS, rows: rows.map(cells),
  };
}

const told = (row, axis) => [`${spoken(axis)} ${figure(row.axes[axis])}`, `${figure(row.median_us)} µs (p10–p90 ${figure(row.p10_us)}–${figure(row.p90_us)})`,
  row.ratio ? `${ratio(row.ratio)} against ${row.baseline ?? "the baseline"}` : null, row.roofline ? `${percent(row.roofline)} of the roof, bound by ${row.bound ?? "?"}` : null,
  `${row.dtype}, ${row.cache} cache, ${row.launch}`].filter(Boolean);

async function roofline(timings, peaks, signal) {
  const rows = newest(timings).filter((row) => row.flops > 0 && row.essential_bytes > 0);
  const devices = [...new Set(rows.map((row) => row.device))];
  const missing = devices.some((device) => !peaks[device]?.copy_gbps);
  const known = missing ? (await get("/v1/hardware", {}, signal)).items : [];
  return devices.map((device) => roof(device, rows.filter((row) => row.device === device), limits(device, peaks[device], known))).filter(Boolean);
}

/** What bounds a device: measured peaks where the records have them, else those of the hardware table. */
function limits(device, measured, known) {
  if (measured?.copy_gbps) return { gbps: measured.copy_gbps, tflops: measured.matmul_tflops ?? {}, from: "measured" };
  const listed = known.find((one) => one.device_names.includes(device))?.figures;
  if (!listed?.mem_gbps) return { gbps: null, tflops: {}, from: null };
  const of = (name) => listed[`tflops.${name}`]?.value;
  return { gbps: listed.mem_gbps.value, tflops: { bfloat16: of("bf16"), float16: of("fp16"), float8_e4m3fn: of("fp8"), tfloat32: of("tf32") }, from: "published" };
}

function roof(device, rows, { gbps, tflops, from }) {
  const at = (row) => ({ x: row.flops / row.essential_bytes, y: row.flops / row.median_us / 1e6 });
  const dtypes = [...new Set(rows.map((row) => row.dtype))];
  const intensities = rows.map((row) => at(row).x);
  const peaks = Object.entries(tflops).filter(([dtype, value]) => value && (dtypes.includes(dtype) || Object.values(tflops).length === 1));
  const ridge = gbps ? peaks.map(([, value]) => (value * 1e3) / gbps) : [];
  const [low, high] = [Math.min(...intensities) / 3, Math.max(...intensities, ...ridge) * 3];
  const series = dtypes.map((dtype, tone) => ({ name: dtype, tone, points: rows.filter((row) => row.dtype === dtype)
    .map((row) => ({ ...at(row), tip: [axes(row.axes), `${figure(at(row).y)} TFLOP/s at ${figure(at(row).x)} FLOP a byte`, `${figure(row.essential_bytes / row.median_us / 1e3)} GB/s, ${figure(row.median_us)} µs`, row.roofline ? `${percent(row.roofline)} of the roof` : ""].filter(Boolean) })) }));
  if (gbps) {
    const slope = (x) => ({ x, y: (x * gbps) / 1e3 });
    const top = peaks.length ? Math.max(...peaks.map(([, value]) => value)) : Infinity;
    series.push({ name: `memory, ${figure(gbps)} GB/s (${from})`, tone: 6, quiet: true, points: [slope(low), slope(Math.min(high, (top * 1e3) / gbps))] });
    peaks.forEach(([dtype, value], index) => series.push({ name: `${dtype}, ${figure(value)} TFLOP/s (${from})`, tone: 7, quiet: true, dashed: index > 0,
      points: [{ x: Math.min(high, (value * 1e3) / gbps), y: value }, { x: high, y: value }] }));
  }
  return plot({
    title: `${device}: what was reached, and what the machine could at best${gbps ? "" : " (its peaks are not known)"}`,
    x: { label: "FLOP a byte that must be moved" }, y: { label: "TFLOP/s" }, series,
    heads: ["shape", "dtype", { number: "FLOP/byte" }, { number: "TFLOP/s" }, { number: "GB/s" }, { number: "of the roof" }],
    rows: rows.map((row) => [axes(row.axes), row.dtype, number(figure(at(row).x)), number(figure(at(row).y)), number(figure(row.essential_bytes / row.median_us / 1e3)), number(percent(row.roofline))]),
  });
}

function memory(records) {
  const rows = records.flatMap((one) => (Array.isArray(one.figures) ? one.figures : Object.entries(one.figures).map(([name, value]) => ({ metric: name, ...(typeof value === "object" ? value : { value }) })))
    .map((row) => [row.metric ?? row.name ?? "–", one.device, number(figure(row.value)), row.unit ?? "", number(figure(row.baseline ?? row.baseline_value))]));
  return table("Memory figures", ["figure", "device", { number: "value" }, "unit", { number: "baseline" }], rows);
}
