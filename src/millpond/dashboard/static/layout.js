// Where the boxes of a job's graph stand: in levels from the sources to the sinks, with few crossings of lines.

const GAP = { along: 102, across: 24 };
const LANE = 10; // room for a line that passes a level without a box
const PORT = 20; // between the ends of lines at the same box

/**
 * `boxes`: [{id, width, height, inputs: [{id, ...}]}]. `down`: levels are rows instead of columns.
 * Returns {width, height, places: Map(id -> {x, y}), lines: [{from, to, input, points: [[x, y], ...]}]}.
 */
export function layout(boxes, down = false) {
  const byId = new Map(boxes.map((box) => [box.id, box]));
  const level = levels(boxes, byId);
  const items = new Map(
    boxes.map((box) => [box.id, { ...size(box, down), id: box.id, level: level.get(box.id), before: [], after: [] }]),
  );
  const lines = [];
  for (const box of boxes) {
    for (const input of box.inputs) {
      if (!byId.has(input.id)) continue;
      lines.push({ from: input.id, to: box.id, input, items: path(input.id, box.id, items, lines.length) });
    }
  }
  const rows = order([...items.values()]);
  const extent = place(rows);
  for (const item of items.values()) item.before.sort((left, right) => left.across - right.across);
  const turn = ([along, across]) => (down ? [across, along] : [along, across]);
  const places = new Map();
  for (const box of boxes) {
    const item = items.get(box.id);
    const [x, y] = turn([item.along, item.across - item.thickness / 2]);
    places.set(box.id, { x, y });
  }
  const [width, height] = turn([extent.along, extent.across]);
  return { width, height, places, lines: lines.map((line) => ({ ...line, points: points(line.items).map(turn) })) };
}

function size(box, down) {
  return down ? { length: box.height, thickness: box.width } : { length: box.width, thickness: box.height };
}

/** The longest way from a source. A cycle (there should be none) ends where it began. */
function levels(boxes, byId) {
  const found = new Map();
  const visit = (box, seen) => {
    if (found.has(box.id)) return found.get(box.id);
    if (seen.has(box.id)) return 0;
    seen.add(box.id);
    const inputs = box.inputs.filter((input) => byId.has(input.id));
    const level = inputs.length ? 1 + Math.max(...inputs.map((input) => visit(byId.get(input.id), seen))) : 0;
    found.set(box.id, level);
    return level;
  };
  boxes.forEach((box) => visit(box, new Set()));
  return found;
}

/** From box to box, with an empty item in each level between. */
function path(from, to, items, number) {
  const [start, end] = [items.get(from), items.get(to)];
  const whole = [start];
  for (let level = start.level + 1; level < end.level; level += 1) {
    const lane = {
      id: `lane-${number}-${level}`,
      lane: true,
      level,
      length: 0,
      thickness: LANE,
      before: [],
      after: [],
    };
    items.set(lane.id, lane);
    whole.push(lane);
  }
  whole.push(end);
  for (let index = 1; index < whole.length; index += 1) {
    whole[index - 1].after.push(whole[index]);
    whole[index].before.push(whole[index - 1]);
  }
  return whole;
}

/** Items of each level, sorted again and again by the mean position of their neighbours. */
function order(items) {
  const rows = [];
  for (const item of items) (rows[item.level] ??= []).push(item);
  const index = () => rows.forEach((row) => row.forEach((item, position) => (item.position = position)));
  const mean = (item, side) =>
    item[side].length ? item[side].reduce((sum, other) => sum + other.position, 0) / item[side].length : item.position;
  const sweep = (row, side) => {
    const wish = new Map(row.map((item) => [item, mean(item, side)]));
    row.sort((left, right) => wish.get(left) - wish.get(right));
    index();
  };
  index();
  for (let round = 0; round < 6; round += 1) {
    rows.slice(1).forEach((row) => sweep(row, "before"));
    rows
      .slice(0, -1)
      .reverse()
      .forEach((row) => sweep(row, "after"));
  }
  return rows;
}

/** Levels one after the other; within one, each item as near to its neighbours' middle as those beside it allow. */
function place(rows) {
  let along = 0;
  for (const row of rows) {
    const length = Math.max(...row.map((item) => item.length));
    let across = 0;
    for (const item of row) {
      if (item.lane) item.length = length; // straight past the boxes beside it
      item.along = along + (length - item.length) / 2;
      item.end = item.along + item.length;
      item.across = across + item.thickness / 2;
      across += item.thickness + GAP.across;
    }
    along += length + GAP.along;
  }
  for (let round = 0; round < 8; round += 1) {
    const forward = round % 2 === 0;
    for (const row of forward ? rows : [...rows].reverse()) settle(row, forward ? "before" : "after");
  }
  const all = rows.flat();
  const least = Math.min(...all.map((item) => item.across - item.thickness / 2));
  for (const item of all) item.across -= least;
  return { along: along - GAP.along, across: Math.max(...all.map((item) => item.across + item.thickness / 2)) };
}

function settle(row, side) {
  const wish = row.map((item) =>
    item[side].length ? item[side].reduce((sum, other) => sum + other.across, 0) / item[side].length : item.across,
  );
  row.forEach((item, position) => (item.across = wish[position]));
  const apart = (left, right) => (left.thickness + right.thickness) / 2 + GAP.across;
  // pushed apart from both ends, then the middle of both: nobody is favoured
  const down = row.map((item) => item.across);
  for (let i = 1; i < row.length; i += 1) down[i] = Math.max(down[i], down[i - 1] + apart(row[i - 1], row[i]));
  const up = row.map((item) => item.across);
  for (let i = row.length - 2; i >= 0; i -= 1) up[i] = Math.min(up[i], up[i + 1] - apart(row[i], row[i + 1]));
  row.forEach((item, position) => (item.across = (down[position] + up[position]) / 2));
}

function points(items) {
  const found = [[items[0].end, items[0].across]];
  for (const lane of items.slice(1, -1)) found.push([lane.along, lane.across], [lane.end, lane.across]);
  const last = items[items.length - 1];
  const port = last.before.indexOf(items[items.length - 2]) - (last.before.length - 1) / 2;
  found.push([last.along, last.across + port * Math.min(PORT, (last.thickness - 40) / last.before.length)]);
  return found;
}
