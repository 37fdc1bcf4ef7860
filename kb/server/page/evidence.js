import { el } from "/dom.js"; export async function evidence() { return el('p', {}, '…'); }
