import { el } from "/dom.js"; export async function lineage() { return el('p', {}, '…'); }
