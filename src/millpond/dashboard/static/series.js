// What the page has seen since it was opened: the last minutes of numbers that the service only gives as of now.

const LIMIT = 900; // 15 minutes, one point a second

const all = new Map();

/** Adds a point; a time that is already there, or earlier, is the same report read twice. */
export function remember(name, timeMs, value) {
  if (typeof value !== "number" || !Number.isFinite(value)) return;
  let points = all.get(name);
  if (!points) all.set(name, (points = []));
  if (points.length && points[points.length - 1][0] >= timeMs) return;
  points.push([timeMs, value]);
  if (points.length > LIMIT) points.shift();
}

/** [[time, value], ...], oldest first. */
export function remembered(name) {
  return all.get(name) || [];
}
