// Optimisation runs on targets: what they cost, what they achieved, what they used and made.

import { get, part } from "/api.js";
import { el } from "/dom.js";
import { published } from "/published.js";
import { figure, home, ladder } from "/words.js";

export async function show({ main, signal, wait }) {
  wait();
  const listed = await get("/v1/campaigns", { limit: 100 }, signal);
  const found = await Promise.all(listed.items.map((row) => part(row.id, "", {}, signal)));
  document.title = "Campaigns · kernel-kb";
  main.replaceChildren(el("div", { class: "page" }, el("h1", { tabindex: "-1" }, "Campaigns"),
    el("p", { class: "lead" }, "An optimisation run on a target: its baseline, what it reached, what it cost, and which entries went in and came out."),
    found.length ? found.map(card) : el("p", { class: "empty" }, "No campaigns yet. A run is filed as an entry of the kind campaign.")));
}

const link = (id) => el("li", {}, el("a", { href: home(id) }, id));

function card(found) {
  const run = found.facts.campaign ?? {};
  const cost = [run.duration_days && `${figure(run.duration_days)} days`, run.tokens && `${figure(run.tokens / 1e6)} million tokens`,
    run.gpu_hours && `${figure(run.gpu_hours)} GPU-hours`, run.usd && (typeof run.usd === "number" ? `$${figure(run.usd)}` : run.usd)].filter(Boolean);
  const rows = [
    ["Target", run.target ? el("a", { href: home(run.target) }, run.target) : null], ["Baseline", run.baseline], ["Cost", cost.join(" · ") || null],
    ["Used", run.reused?.length ? el("ul", {}, run.reused.map(link)) : null], ["Produced", run.produced?.length ? el("ul", {}, run.produced.map(link)) : null],
    ["Open points", run.open_points?.length ? el("ul", {}, run.open_points.map((one) => el("li", {}, one))) : null],
  ].filter(([, value]) => value);
  return el("article", { class: "card" },
    el("h2", {}, el("a", { href: home(found.id), "data-hit": found.id }, found.title)), el("p", { class: "lead" }, found.summary), el("p", { class: "chips" }, ladder(found.evidence, found.freshness)),
    el("dl", { class: "pairs" }, rows.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
    found.facts.claims?.length ? published(found.facts.claims) : el("p", { class: "empty" }, "No results are stated."));
}
