// Elements out of data. Stored text becomes text nodes and checked attributes, never markup.

const SVG = "http://www.w3.org/2000/svg";
const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e007f}]/gu;

/** Text in which characters that one cannot see, or that turn the reading direction, are shown as U+FFFD. */
export const clean = (value) => String(value).replace(HIDDEN, "\ufffd");

/** A link target that only leads to this server or to the web; anything else becomes undefined. */
export function safeHref(href) {
  const text = String(href);
  if (text.startsWith("#")) return text;
  if (text.startsWith("/") && !text.startsWith("//") && !text.startsWith("/\\")) return text;
  try {
    const url = new URL(text);
    return url.protocol === "https:" || url.protocol === "http:" ? url.href : undefined;
  } catch {
    return undefined;
  }
}

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, act] of Object.entries(value)) made.addEventListener(event, act);
    else if (name === "href") {
      const href = safeHref(value);
      if (href !== undefined) made.setAttribute("href", href);
    } else if (name === "style" || name.startsWith("on")) throw new TypeError(`${name} is not for text`);
    else made.setAttribute(name, value === true ? "" : clean(value));
  }
  add(made, children);
  return made;
}

/** Append texts, elements and lists of them; null and false are left out. */
export function add(parent, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    parent.append(child instanceof Node ? child : clean(child));
  }
  return parent;
}

export const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** Set a property of an element's style; a value that is no number or length is refused by the browser. */
export function styled(made, properties) {
  for (const [name, value] of Object.entries(properties)) made.style.setProperty(name, value);
  return made;
}

/** Say something to those who do not see the page. */
export function say(text) {
  const place = document.getElementById("said");
  if (place.textContent !== clean(text)) place.textContent = clean(text);
}

/** A table: heads and rows of cells; a cell is text, an element, or {value, number: true}. */
export function table(caption, heads, rows, { hideCaption = false } = {}) {
  const cell = (one, number) => {
    const rich = one !== null && typeof one === "object" && !(one instanceof Node) && !Array.isArray(one);
    return el(number ? "th" : "td", { class: rich && one.number ? "num" : null, scope: number ? "row" : null },
      rich ? one.value : one);
  };
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {},
      el("caption", { class: hideCaption ? "unseen" : null }, caption),
      el("thead", {}, el("tr", {}, heads.map((head) => {
        const number = typeof head === "object" && head !== null;
        return el("th", { scope: "col", class: number ? "num" : null }, number ? head.number : head);
      }))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((one, at) => cell(one, at === 0)))))));
}

/** A button that puts text on the clipboard. */
export function copier(text, label = "copy") {
  const button = el("button", { type: "button", class: "copy", "aria-label": `${label}: ${text.slice(0, 80)}` }, label);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "copied";
      say("copied");
    } catch {
      button.textContent = "not allowed";
    }
    setTimeout(() => { button.textContent = label; }, 1500);
  });
  return button;
}
