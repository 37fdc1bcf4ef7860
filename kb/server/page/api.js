// Questions to the server, and what goes wrong with them.

/** Why there is no answer; `kind` is offline, token, refused or fault. */
export class Fault extends Error {
  constructor(kind, message, { hint = null, status = 0 } = {}) {
    super(message);
    this.kind = kind;
    this.hint = hint;
    this.status = status;
  }
}

const TOKEN = "kb-token";

function token() {
  try {
    return sessionStorage.getItem(TOKEN);
  } catch {
    return null;
  }
}

/** Keep a token until this tab is closed; an empty one is forgotten. */
export function keepToken(text) {
  try {
    if (text) sessionStorage.setItem(TOKEN, text);
    else sessionStorage.removeItem(TOKEN);
  } catch {
    // Without storage one has to give it again.
  }
}

/** Write parameters as a query; null and empty ones are left out, lists are repeated. */
export function query(parameters) {
  const made = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters ?? {})) {
    for (const one of [value].flat()) if (one !== null && one !== undefined && one !== "" && one !== false) made.append(name, one);
  }
  const text = made.toString();
  return text ? `?${text}` : "";
}

async function problem(answer) {
  let said = {};
  try {
    said = await answer.json();
  } catch {
    // What stands between may answer in another form.
  }
  const kind = answer.status === 401 ? "token" : answer.status >= 500 ? "fault" : "refused";
  return new Fault(kind, said.detail ?? `the server answered ${answer.status}`, { hint: said.hint, status: answer.status });
}

/** Ask for JSON of this server. Aborting raises AbortError; all else that fails raises a Fault. */
export async function get(path, parameters, signal) {
  const headers = { Accept: "application/json" };
  const mine = token();
  if (mine) headers.Authorization = `Bearer ${mine}`;
  let answer;
  try {
    answer = await fetch(path + query(parameters), { headers, signal, credentials: "omit", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    document.dispatchEvent(new CustomEvent("kb-offline"));
    throw new Fault("offline", "The server does not answer.", { hint: "kb serve" });
  }
  document.dispatchEvent(new CustomEvent("kb-online"));
  if (!answer.ok) throw await problem(answer);
  return answer.json();
}

const ROOT = "/v1/entries/";
const path = (id) => ROOT + id.split("/").map(encodeURIComponent).join("/");

/** One part of an entry: "" for the entry itself, or versions, diff, evidence, figures, lineage, rendered. */
export const part = (id, name, parameters, signal) => get(path(id) + (name ? `/${name}` : ""), parameters, signal);

export const recordPath = (record) => {
  const [id, name] = record.split("/records/");
  return `${path(id)}/records/${encodeURIComponent(name)}`;
};
