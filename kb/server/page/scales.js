// Scales of a plot's axes and their ticks.

const STEPS = [1, 2, 5];

/** A logarithmic scale over positive values, with a little room at both ends. */
export function logarithmic(values, from, to) {
  const [low, high] = ends(values);
  const room = low === high ? Math.log(2) : Math.log(high / low) * 0.06;
  const [first, last] = [Math.log(low) - room, Math.log(high) + room];
  const at = (value) => from + ((Math.log(value) - first) / (last - first)) * (to - from);
  return { at, low: Math.exp(first), high: Math.exp(last), ticks: decades(Math.exp(first), Math.exp(last)) };
}

function ends(values) {
  const positive = values.filter((value) => value > 0 && Number.isFinite(value));
  return positive.length ? [Math.min(...positive), Math.max(...positive)] : [1, 10];
}

function decades(low, high) {
  const span = Math.log10(high / low);
  const steps = span > 4 ? [1] : span > 1.6 ? [1, 3] : span > 0.7 ? STEPS : [1, 1.5, 2, 3, 4, 5, 6, 8];
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const step of steps) {
      const value = step * 10 ** power;
      if (value >= low * 0.9999 && value <= high * 1.0001) found.push(Number(value.toPrecision(6)));
    }
  }
  return found;
}

/** Ticks at the values themselves where they are few, so that one reads 2,048 and not 2,000. */
export function atValues(scale, values, most = 12) {
  const distinct = [...new Set(values)].sort((a, b) => a - b);
  return distinct.length >= 2 && distinct.length <= most ? { ...scale, ticks: distinct } : scale;
}

/** The ticks that have room: none nearer to the one before than `gap` pixels. */
export function spaced(scale, gap) {
  let last = -Infinity;
  return scale.ticks.filter((tick) => {
    const place = scale.at(tick);
    if (Math.abs(place - last) < gap) return false;
    last = place;
    return true;
  });
}
