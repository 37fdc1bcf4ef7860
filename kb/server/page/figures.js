import { el } from "/dom.js"; export async function figures() { return el('p', {}, '…'); }
