// One entry: what it is, why, its code, what is proven, its figures, versions and relatives.

import { part } from "/api.js";
import { copier, el } from "/dom.js";
import { code, readme } from "/rich.js";
import { chip, home, ladder, spoken } from "/words.js";
import { evidence } from "/evidence.js";
import { figures } from "/figures.js";
import { lineage } from "/lineage.js";
import { versions } from "/versions.js";

export async function show({ main, id, url, signal, go, wait }) {
  wait();
  const version = url.searchParams.get("version");
  const found = await part(id, "", { version }, signal);
  document.title = `${found.title} · kernel-kb`;
  const context = { found, id, url, signal, go, version };
  const sections = [
    ["about", "About", about], ["code", "Code", source], ["evidence", "Evidence", evidence], ["figures", "Figures", figures],
    ["versions", "Versions", versions], ["lineage", "Lineage", lineage],
  ];
  const body = el("div", { class: "entry-body" });
  main.replaceChildren(el("article", { class: "page entry" }, head(context),
    el("nav", { class: "within", "aria-label": "Sections" }, sections.map(([name, title]) => el("a", { href: `#${name}` }, title))),
    el("div", { class: "entry-grid" }, body, facts(found))));
  const filled = sections.map(([name, title, make]) => {
    const place = el("div", { "aria-busy": "true" }, el("p", { class: "loading" }, "Loading…"));
    body.append(el("section", { id: name, "aria-labelledby": `${name}-title` }, el("h2", { id: `${name}-title` }, title), place));
    return fill(place, make, context);
  });
  // Where one wants to get to a place of the page, it has to have its height first.
  if (location.hash || history.state?.top) await Promise.all(filled);
}

/** Sections load beside one another; one that fails says so and leaves the others alone. */
async function fill(place, make, context) {
  try {
    const made = await make(context);
    if (context.signal.aborted) return;
    place.replaceChildren(...[made].flat().filter(Boolean));
    place.dispatchEvent(new CustomEvent("kb-placed"));
  } catch (error) {
    if (context.signal.aborted || error.name === "AbortError") return;
    if (!error.kind) console.error(error);
    place.replaceChildren(el("p", { class: "failure inline", role: "alert" }, error.message,
      error.hint ? [" Next: ", el("code", {}, error.hint)] : null, " ",
      el("button", { type: "button", on: { click: () => fill(place, make, context) } }, "Try again")));
  } finally {
    place.removeAttribute("aria-busy");
  }
}

function head({ found, id, version }) {
  const parts = id.split("/");
  return el("header", { class: "entry-head" },
    el("nav", { "aria-label": "Where" }, el("ol", { class: "crumbs" },
      el("li", {}, el("a", { href: `/?kind=${parts[0]}` }, parts[0])),
      el("li", {}, el("a", { href: found.operator ? `/?operator=${encodeURIComponent(parts[1])}` : `/?q=${encodeURIComponent(parts[1])}` }, parts[1])),
      el("li", {}, parts[2]))),
    el("h1", { tabindex: "-1" }, found.title),
    el("p", { class: "lead" }, found.summary),
    found.withdrawn ? el("p", { class: "failure inline" }, `Withdrawn: ${found.withdrawn}`) : null,
    version && found.commit ? el("p", { class: "note" }, `This is version ${found.version}, from git at ${found.commit.slice(0, 12)}. `, el("a", { href: home(id) }, "Show the present one")) : null,
    el("p", { class: "chips" },
      chip(found.outcome, "outcome"), ladder(found.evidence, found.freshness),
      found.freshness && found.freshness !== "unknown" ? chip(found.freshness, "fresh") : null,
      found.language !== "none" ? el("span", { class: "chip" }, found.language) : null,
      found.dtypes.map((one) => el("span", { class: "chip" }, one)), el("span", { class: "chip" }, found.license)),
    el("p", { class: "command" }, el("code", {}, `kb show ${id}`), copier(`kb show ${id}`),
      id.startsWith("target/") ? el("a", { href: `/${id}` }, "plan for this target") : null));
}

async function shown({ id, version, signal }) {
  return part(id, "rendered", { version }, signal);
}

async function about(context) {
  context.rendered = shown(context);
  const { readme: nodes } = await context.rendered;
  const title = nodes[0]?.t === "h3" ? nodes.slice(1) : nodes;
  const negative = context.found.facts.negative;
  if (negative) return [came(negative, context.found.outcome), readme(title)];
  return nodes.length ? readme(title) : el("p", { class: "empty" }, "It has no readme.");
}

/** A negative result says first what was hoped for, when, and what happened. */
function came(negative, outcome) {
  return el("dl", { class: "pairs came" }, el("dt", {}, "Hypothesis"), el("dd", {}, negative.hypothesis), el("dt", {}, "Condition"), el("dd", {}, negative.condition),
    el("dt", {}, spoken(outcome)), el("dd", {}, el("strong", {}, negative.effect)));
}

async function source(context) {
  const { files } = await context.rendered;
  const names = Object.keys(files);
  if (!names.length) return el("p", { class: "empty" }, "It carries no code: an idea with evidence.");
  const texts = context.found.contents ?? {};
  return names.map((name, at) => el("details", { class: "file", open: at === 0 },
    el("summary", {}, el("span", { class: "name" }, name), el("span", { class: "soft" }, `${files[name].length} lines`)),
    el("div", { class: "with-copy" }, copier(texts[name] ?? ""), code(files[name], { numbers: true, label: name }))));
}

/** Facts of entry.toml that matter before one uses it. */
function facts(found) {
  const given = found.facts;
  const list = (values) => (values?.length ? values.join(", ") : null);
  const table = (values) => Object.entries(values ?? {}).map(([name, value]) => el("div", {}, el("code", {}, name), " ", flat(value)));
  const operators = found.operators.map((name) => el("div", {}, el("a", { href: `/?operator=${encodeURIComponent(name)}` }, name)));
  const rows = [
    ["Operators", operators.length ? operators : null],
    ["Entry point", given.entry_point ? el("code", {}, given.entry_point) : null],
    ["Architectures", list(given.requires?.arch)],
    ["Features", list(given.requires?.features)],
    ["Packages", Object.keys(given.requires?.packages ?? {}).length ? table(given.requires.packages) : null],
    ["Limits", Object.keys(given.limits ?? {}).length ? table(given.limits) : null],
    ["Provides", list(given.contracts?.provides)],
    ["Excludes", list(given.contracts?.excludes)],
    ["Source", given.source ? Object.entries(given.source).map(([name, value]) => el("div", {}, name === "origin" || name === "note" ? null : el("span", { class: "soft" }, `${spoken(name)} `), flat(value))) : null],
    ["Version", String(found.version)],
    ["Digest", el("code", { title: found.digest }, found.digest.slice(0, 12))],
    ["Tags", list(found.tags.slice(0, 14))],
  ].filter(([, value]) => value !== null);
  return el("aside", { class: "facts", "aria-label": "Facts" }, el("h2", {}, "Facts"),
    el("dl", {}, rows.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])));
}

function flat(value) {
  if (value === null || typeof value !== "object") return String(value);
  if (Array.isArray(value)) return value.map(flat).join(", ");
  return Object.entries(value).map(([name, one]) => `${name.replaceAll("_", " ")} ${flat(one)}`).join(", ");
}
