export async function show({ main }) { main.replaceChildren(); }
