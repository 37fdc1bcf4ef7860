// Published figures that differ in one size only are a curve. Their workloads are prose, so sizes are read from it.

const WHOLE = /(?<![A-Za-z\d.])\d[\d,]*(?![A-Za-z\d]|\.\d)/g;
const FEWEST = 3;

/** The numbers of a workload with their names, and the text without them. */
function read(workload) {
  const sizes = [];
  const rest = workload.replace(WHOLE, (digits, at) => {
    const [before, after] = [workload.slice(0, at), workload.slice(at + digits.length)];
    const name = before.match(/([A-Za-z]\w*)=$/)?.[1] ?? after.match(/^ (tokens?|rows|experts|sequences|requests|streams|bytes|KiB|MiB)\b/)?.[1]
      ?? before.match(/([A-Za-z][\w-]*) $/)?.[1] ?? `size ${sizes.length + 1}`;
    sizes.push({ name: name === "token" ? "tokens" : name, value: Number(digits.replaceAll(",", "")) });
    return "#";
  }).replace(/# tokens?\b/, "# tokens");
  return { sizes, rest };
}

/**
 * Curves among claims of one metric: [{axis, about, series: [{name, points: [{x, y, claim}]}]}], and the claims that
 * are on none.
 */
export function curves(claims) {
  const groups = new Map();
  for (const claim of claims) {
    const found = read(claim.workload);
    const here = groups.get(found.rest) ?? [];
    here.push({ claim, sizes: found.sizes });
    groups.set(found.rest, here);
  }
  const made = [];
  const left = [];
  for (const [rest, rows] of groups) {
    const curve = along(rest, rows);
    if (curve) made.push(curve);
    else left.push(...rows.map((row) => row.claim));
  }
  return { made, left };
}

function along(rest, rows) {
  const distinct = rows[0].sizes.map((_, at) => new Set(rows.map((row) => row.sizes[at].value)).size);
  const most = Math.max(0, ...distinct);
  if (most < FEWEST) return null;
  const at = distinct.indexOf(most);
  const series = new Map();
  for (const row of rows) {
    const others = row.sizes.filter((_, place) => place !== at && distinct[place] > 1).map((size) => `${size.name} ${size.value}`);
    const put = (what, y) => {
      const name = [what, ...others].filter(Boolean).join(" · ");
      const key = JSON.stringify([row.claim.device, name]);
      const here = series.get(key) ?? { name, device: row.claim.device, points: [] };
      here.points.push({ x: row.sizes[at].value, y, claim: row.claim });
      series.set(key, here);
    };
    put(row.claim.backend ?? "this", row.claim.value);
    if (row.claim.baseline_value) put(row.claim.baseline, row.claim.baseline_value);
  }
  const list = [...series.values()];
  if (!list.some((one) => new Set(one.points.map((point) => point.x)).size >= FEWEST)) return null;
  let position = 0;
  const about = rest.replaceAll("#", () => {
    const here = position++;
    return here === at ? "…" : distinct[here] > 1 ? "#" : String(rows[0].sizes[here].value);
  });
  return { axis: rows[0].sizes[at].name, about, series: list };
}
