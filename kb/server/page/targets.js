// All targets: fixed deployments that the store can be asked for a plan of.

import { get } from "/api.js";
import { el } from "/dom.js";

export async function show({ main, signal, wait }) {
  wait();
  const found = await get("/v1/targets", { limit: 200 }, signal);
  document.title = "Targets · kernel-kb";
  const rows = found.items.map((row) => el("li", { class: "hit" },
    el("div", { class: "head" }, el("a", { href: `/${row.id}`, "data-hit": row.id }, row.title)),
    el("p", { class: "id" }, row.id), el("p", { class: "summary" }, row.summary),
    el("p", { class: "chips" }, row.dtypes.map((one) => el("span", { class: "chip" }, one)))));
  main.replaceChildren(el("div", { class: "page" },
    el("h1", { tabindex: "-1" }, "Targets"),
    el("p", { class: "lead" }, "A target is one model on given devices in one precision under given traffic. Its page says which operators take its time, and what the store holds for them."),
    rows.length ? el("ol", { class: "hits" }, rows) : el("p", { class: "empty" }, "No targets yet. Make one: ", el("code", {}, "kb target new"))));
}
