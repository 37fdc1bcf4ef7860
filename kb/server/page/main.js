// The page's frame: addresses, theme, keys, and what is shown while there is no answer.

import { Fault, get, keepToken } from "/api.js";
import { add, el } from "/dom.js";
import * as campaigns from "/campaigns.js";
import * as entry from "/entry.js";
import * as matrix from "/matrix.js";
import * as search from "/search.js";
import * as target from "/target.js";
import * as targets from "/targets.js";

const VIEWS = [
  [/^\/$/, search],
  [/^\/entry\/([a-z]+\/[^/]+\/[^/]+)$/, entry],
  [/^\/matrix$/, matrix],
  [/^\/targets$/, targets],
  [/^\/(target\/[^/]+\/[^/]+)$/, target],
  [/^\/campaigns$/, campaigns],
];

const main = document.getElementById("main");
let current = null;
let shownPath = null;

function remember() {
  const focus = document.activeElement?.dataset?.hit ?? null;
  history.replaceState({ ...history.state, top: scrollY, focus }, "");
}

/** Go to an address of this page, as if a link had been followed. */
export function go(href) {
  remember();
  history.pushState({}, "", href);
  show({ moved: true });
}

async function show({ moved = false, back = false } = {}) {
  current?.abort();
  current = new AbortController();
  const { signal } = current;
  const url = new URL(location.href);
  shownPath = url.pathname + url.search;
  main.dataset.at = shownPath;
  main.setAttribute("aria-busy", "true");
  const found = VIEWS.map(([pattern, view]) => [url.pathname.match(pattern), view]).find(([match]) => match);
  mark(url.pathname);
  const name = decoded(found?.[0][1] ?? "");
  const kept = back ? history.state ?? {} : {};
  try {
    if (!found || name === null) throw new Fault("refused", "There is no such page.", { hint: "Search finds everything that is here.", status: 404 });
    await found[1].show({ main, id: name, url, signal, go, wait: () => waiting(signal) });
    if (signal.aborted) return;
    main.removeAttribute("aria-busy");
    settle({ moved, kept });
  } catch (error) {
    if (signal.aborted || error.name === "AbortError") return;
    main.removeAttribute("aria-busy");
    fail(error);
  }
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}

/** Put scrolling and focus where they belong: where one was on the way back, at the top of what is new. */
function settle({ moved, kept }) {
  if (kept.top !== undefined) scrollTo(0, kept.top);
  else if (moved) scrollTo(0, 0);
  const again = kept.focus ? main.querySelector(`[data-hit="${CSS.escape(kept.focus)}"]`) : null;
  if (again) again.focus({ preventScroll: true });
  else if (moved) main.querySelector("[data-first], h1")?.focus({ preventScroll: true });
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

/** Show that something is on its way, but not for answers that come at once. */
function waiting(signal) {
  const before = main.firstElementChild;
  setTimeout(() => {
    if (signal.aborted || !main.hasAttribute("aria-busy") || main.firstElementChild !== before) return;
    main.replaceChildren(el("div", { class: "page" }, el("p", { class: "loading" }, "Loading…"),
      Array.from({ length: 5 }, () => el("div", { class: "bone", "aria-hidden": "true" }))));
  }, 180);
}

function fail(error) {
  if (!(error instanceof Fault)) console.error(error);
  document.title = "Not shown · kernel-kb";
  const again = el("button", { type: "button", on: { click: () => show() } }, "Try again");
  const title = { offline: "The server does not answer", token: "This server wants a token", refused: "Not found or not understood" };
  const heading = error instanceof Fault ? title[error.kind] ?? "The server could not answer" : "The page made a mistake";
  main.replaceChildren(el("div", { class: "page" }, el("div", { class: "failure", role: "alert" },
    el("h1", { tabindex: "-1" }, error.status === 404 ? "Not found" : heading),
    el("p", {}, error.message), error.hint ? el("p", { class: "soft" }, "Next: ", el("code", {}, error.hint)) : null,
    error.kind === "token" ? asking() : el("p", {}, again))));
  main.querySelector("h1").focus({ preventScroll: true });
}

function asking() {
  const field = el("input", { type: "password", id: "token", autocomplete: "off", spellcheck: "false" });
  return el("form", { class: "token", on: { submit: (event) => { event.preventDefault(); keepToken(field.value.trim()); show(); } } },
    el("label", { for: "token" }, "Token (kept until this tab is closed)"), field, el("button", {}, "Use it"));
}

function mark(path) {
  for (const link of document.querySelectorAll("#nav a")) {
    const here = link.getAttribute("href");
    const on = here === path || (here === "/targets" && path.startsWith("/target/"));
    if (on) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const href = link.getAttribute("href");
  if (!href.startsWith("/") || /^\/(v1|openapi\.json|mcp|metrics)\b/.test(href)) return;
  event.preventDefault();
  go(href);
});
addEventListener("popstate", () => {
  if (location.pathname + location.search !== shownPath) show({ back: true });
  else if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
  else scrollTo(0, history.state?.top ?? 0);
});
// A view that changes the address by itself says so, for then there is nothing to show anew.
document.addEventListener("kb-moved", () => { shownPath = location.pathname + location.search; });
history.scrollRestoration = "manual";

const MARKS = { system: ["◐", "as the system"], light: ["☀", "light"], dark: ["☾", "dark"] };
function theme(next) {
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("kb-theme", next);
  } catch {
    // It lasts as long as the page then.
  }
  const [sign, name] = MARKS[next];
  document.getElementById("theme-mark").textContent = sign;
  document.getElementById("theme-name").textContent = `Colours: ${name}`;
  document.getElementById("theme").title = `Colours: ${name}`;
}
theme(document.documentElement.dataset.theme ?? "system");
document.getElementById("theme").addEventListener("click", () => {
  const order = ["system", "light", "dark"];
  theme(order[(order.indexOf(document.documentElement.dataset.theme ?? "system") + 1) % 3]);
});

const help = document.getElementById("help");
document.getElementById("keys").addEventListener("click", () => help.showModal());
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.key === "?" && !typing) {
    event.preventDefault();
    help.showModal();
  } else if (event.key === "/" && !typing) {
    event.preventDefault();
    const field = document.getElementById("q");
    if (field) {
      field.focus();
      field.select();
    } else go("/");
  }
});

const banner = document.getElementById("banner");
let looking = null;
document.addEventListener("kb-offline", () => {
  if (looking) return;
  banner.hidden = false;
  banner.textContent = "The server does not answer. What you see may be old; trying again…";
  looking = setInterval(async () => {
    try {
      await get("/healthz");
      show();
    } catch {
      // It is still away.
    }
  }, 3000);
});
document.addEventListener("kb-online", () => {
  if (!looking) return;
  clearInterval(looking);
  looking = null;
  banner.hidden = true;
});

get("/v1").then((found) => {
  const faults = found.left_out.length ? ` · ${found.left_out.length} left out because they cannot be read` : "";
  add(document.getElementById("server"), `kernel-kb ${found.version} · ${found.entries} entries${faults}`);
}, () => {});
show();
