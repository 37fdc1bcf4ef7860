// Search as one types: the address holds the state, facets narrow it, the keyboard does it all.

import { get } from "/api.js";
import { el, say } from "/dom.js";
import { chosen, facets, FILTERS } from "/facets.js";
import { best, chip, home, ladder, spoken, transferChip } from "/words.js";

const PAUSE_MS = 120;
const PAGE = 25;
const EXAMPLES = ["rmsnorm decode bf16", "nvfp4 moe grouped gemm small batch", "paged attention fp8 kv cache",
  "all-reduce below 1 MB", "what did not help"];

let all = null;

export async function show({ main, url, signal, go }) {
  document.title = "Search · kernel-kb";
  const view = new View(main, url, signal, go);
  await view.start();
}

class View {
  constructor(main, url, signal, go) {
    this.main = main;
    this.signal = signal;
    this.go = go;
    this.state = new URLSearchParams(url.search);
    this.asking = null;
    this.timer = 0;
    signal.addEventListener("abort", () => { clearTimeout(this.timer); this.asking?.abort(); });
  }

  async start() {
    this.frame();
    this.main.setAttribute("aria-busy", "true");
    all ??= await get("/v1/facets", {}, this.signal);
    try {
      await this.ask();
    } catch (error) {
      if (error.kind !== "refused") throw error;
      this.broken(error);
    }
  }

  frame() {
    const q = this.state.get("q") ?? "";
    this.field = el("input", {
      id: "q", type: "search", name: "q", value: q, autocomplete: "off", spellcheck: "false", maxlength: 2000, enterkeyhint: "search",
      placeholder: "kernel, strategy, symptom … in your own words", "aria-describedby": "hint", "data-first": true,
      on: { input: () => this.typed(), keydown: (event) => this.key(event) },
    });
    this.field.value = q;
    this.count = el("p", { class: "count" });
    this.read = el("p", { class: "read" });
    this.list = el("ol", { class: "hits", id: "hits", on: { keydown: (event) => this.move(event) } });
    this.more = el("div", { class: "more" });
    this.side = el("div", { class: "facets" });
    const folded = matchMedia("(max-width: 760px)").matches;
    this.main.replaceChildren(el("div", { class: "page two" },
      el("form", { class: "ask", role: "search", on: { submit: (event) => { event.preventDefault(); this.first(); } } },
        el("h1", { class: "unseen" }, "Search the knowledge base"),
        el("label", { for: "q", class: "unseen" }, "Search"), this.field,
        el("span", { id: "hint", class: "hint", "aria-hidden": "true" }, el("kbd", {}, "/"))),
      el("aside", { "aria-label": "Filters" }, el("details", { class: "fold", open: !folded }, el("summary", {}, "Filters"), this.side)),
      el("section", { "aria-label": "Results" }, el("div", { class: "above" }, this.count, this.read), this.list, this.more)));
  }

  typed() {
    clearTimeout(this.timer);
    this.set("q", this.field.value.trim() ? this.field.value : "");
    this.timer = setTimeout(() => this.ask().catch((error) => this.broken(error)), PAUSE_MS);
  }

  /** Put the state into the address: what is typed replaces it, a filter is a step that one can go back from. */
  set(name, value) {
    if (value) this.state.set(name, value);
    else this.state.delete(name);
    const text = this.state.toString();
    history.replaceState(history.state, "", text ? `/?${text}` : "/");
    document.dispatchEvent(new CustomEvent("kb-moved"));
  }

  filter(changes) {
    const next = new URLSearchParams(this.state);
    for (const [name, value] of Object.entries(changes)) {
      if (value) next.set(name, value);
      else next.delete(name);
    }
    if (!next.get("device")) next.delete("runs");
    this.state = next;
    const text = next.toString();
    history.pushState({}, "", text ? `/?${text}` : "/");
    document.dispatchEvent(new CustomEvent("kb-moved"));
    const focused = document.activeElement?.dataset?.facet;
    this.ask().then(() => this.side.querySelector(`[data-facet="${CSS.escape(focused ?? "")}"]`)?.focus(), (error) => this.broken(error));
  }

  async ask() {
    this.asking?.abort();
    this.asking = new AbortController();
    const { signal } = this.asking;
    const q = (this.state.get("q") ?? "").trim();
    const scope = chosen(this.state);
    this.main.setAttribute("aria-busy", "true");
    const answer = q
      ? await get("/v1/search", { q, limit: PAGE, counts: true, ...scope }, signal)
      : await get("/v1/entries", { limit: PAGE, counts: true, figures: true, ...scope }, signal);
    if (signal.aborted || this.signal.aborted) return;
    this.main.removeAttribute("aria-busy");
    document.title = q ? `${q} · kernel-kb` : "Search · kernel-kb";
    this.show(answer, q);
  }

  broken(error) {
    if (error.name === "AbortError" || this.signal.aborted) return;
    this.main.removeAttribute("aria-busy");
    this.list.replaceChildren();
    this.more.replaceChildren();
    this.read.replaceChildren();
    if (all) this.side.replaceChildren(...facets(this.state, null, all, (changes) => this.filter(changes)));
    this.count.replaceChildren(el("span", { class: "failure inline", role: "alert" },
      error.message, error.hint ? ["  Next: ", el("code", {}, error.hint)] : null));
  }

  show(answer, q) {
    const rows = answer.hits ?? answer.items;
    this.side.replaceChildren(...facets(this.state, answer.counts, all, (changes) => this.filter(changes)));
    this.list.replaceChildren(...rows.map((row) => hit(row)));
    this.tail(answer);
    const known = answer.total ?? Object.values(answer.counts.kind).reduce((sum, one) => sum + one, 0);
    const many = answer.total === undefined && known >= 200 ? "200 or more" : known;
    const total = rows.length ? `${many} ${known === 1 ? "entry" : "entries"}` : "Nothing found";
    this.count.replaceChildren(q || rows.length === 0 ? total : `${total}, by id`);
    this.count.classList.toggle("bare", !rows.length);
    say(total);
    this.read.replaceChildren(...understood(answer));
    if (!rows.length) this.list.append(this.empty(answer, q));
    else if (!q && !FILTERS.some((name) => this.state.get(name))) this.read.replaceChildren(...examples());
  }

  empty(answer, q) {
    const active = FILTERS.filter((name) => this.state.get(name));
    const none = Object.fromEntries(active.map((name) => [name, null]));
    return el("li", { class: "empty" },
      el("p", {}, answer.empty_because ?? (all.total ? `Nothing here fits${q ? ` “${q}”` : ""}.` : "This knowledge base has no entries yet.")),
      all.total ? null : el("p", { class: "soft" }, "Add one: ", el("code", {}, "kb add PATH")),
      active.length ? el("button", { type: "button", on: { click: () => this.filter(none) } }, "Clear all filters") : null);
  }

  tail(answer) {
    this.more.replaceChildren();
    if (!answer.next) return;
    const button = el("button", { type: "button", on: { click: async () => {
      button.disabled = true;
      try {
        const next = await get(answer.next, {}, this.asking.signal);
        const rows = (next.hits ?? next.items).map((row) => hit(row));
        this.list.append(...rows);
        rows[0]?.querySelector("a").focus();
        this.tail(next);
      } catch (error) {
        this.broken(error);
      }
    } } }, "Show more");
    this.more.append(button);
  }

  links() {
    return [...this.list.querySelectorAll("a[data-hit]")];
  }

  first() {
    this.links()[0]?.focus();
  }

  key(event) {
    if (event.key === "ArrowDown") {
      event.preventDefault();
      this.first();
    } else if (event.key === "Enter") {
      event.preventDefault();
      const link = this.links()[0];
      if (link && !this.main.hasAttribute("aria-busy")) link.click();
    } else if (event.key === "Escape" && this.field.value) {
      event.preventDefault();
      this.field.value = "";
      this.typed();
    }
  }

  move(event) {
    const links = this.links();
    const at = links.indexOf(document.activeElement);
    if (at < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const to = { ArrowDown: at + 1, j: at + 1, ArrowUp: at - 1, k: at - 1, Home: 0, End: links.length - 1, Escape: -1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    if (to < 0) this.field.focus();
    else links[Math.min(to, links.length - 1)].focus();
  }
}

function hit(row) {
  const negative = row.outcome !== "works";
  return el("li", { class: negative ? "hit negative" : "hit" },
    el("div", { class: "head" },
      el("a", { href: home(row.id), "data-hit": row.id }, row.title),
      best(row.best)),
    el("p", { class: "id" }, row.id, row.version > 1 ? el("span", { class: "soft" }, ` @${row.version}`) : null),
    el("p", { class: "summary" }, row.summary),
    el("p", { class: "chips" },
      negative ? chip(row.outcome, "outcome") : null,
      row.withdrawn ? chip("withdrawn", "outcome") : null,
      row.transfer ? transferChip(row.transfer) : null,
      ladder(row.evidence, row.freshness),
      row.freshness !== "unknown" ? chip(row.freshness, "fresh") : null,
      row.evidence_device ? el("span", { class: "soft" }, `on ${row.evidence_device}`) : null,
      (row.restrictions ?? []).map((one) => el("span", { class: "chip warn" }, one)),
      row.why?.length ? el("span", { class: "why" }, row.why.join(" · ")) : null));
}

function understood(answer) {
  const parts = Object.entries(answer.facets ?? {}).map(([name, values]) => el("span", {}, el("em", {}, spoken(name)), " ", values.join(", ")));
  const said = parts.length ? [el("span", { class: "label" }, "read as"), ...parts] : [];
  const notes = (answer.notes ?? []).map((note) => el("span", { class: "aside" }, note));
  return [...said, ...notes];
}

function examples() {
  return [el("span", { class: "label" }, "try"), ...EXAMPLES.map((one) => el("a", { href: `/?q=${encodeURIComponent(one)}` }, one))];
}
