// Plots as SVG: lines over time, bars, and small lines without axes.

import { count, minuteOfDay, timeOfDay } from "./format.js";
import { h, s } from "./vdom.js";

const MARGIN = { top: 12, right: 14, bottom: 24, left: 58 };
const GAP = 24;
const hovered = new Map(); // id of a chart -> position of the pointer, 0..1 of its width

let redraw = () => {};

/** Charts call this when the pointer moves over one. */
export function whenChanged(callback) {
  redraw = callback;
}

/** Plots side by side, as many in a row as fit with `least` pixels each, `columns` at most. `build(width)` makes them. */
export function chartGrid(room, columns, build, least = 420) {
  const fitting = Math.max(1, Math.min(columns, Math.floor((room + GAP) / (least + GAP))));
  const width = Math.floor((room - GAP * (fitting - 1)) / fitting);
  return h(
    "div",
    { class: "chart-grid", style: { "grid-template-columns": `repeat(${fitting}, ${width}px)` } },
    build(width),
  );
}

/**
 * `series`: [{label, tone, points: [[ms, value], ...], kind: "line" | "area" | "bars" | "dots"}]. All share both axes, and the
 * lower end of the upright one is 0. `format` writes its values.
 */
export function timeChart({ id, label, width, height = 200, series, format = count, limit }) {
  const times = series.flatMap((one) => one.points.map(([ms]) => ms));
  if (new Set(times).size < 2)
    return h("div", { class: "chart-wait", style: { height: `${height}px` } }, "Waiting for more values…");
  const range = [Math.min(...times), Math.max(...times)];
  if (series.some((one) => one.kind === "bars")) {
    const half = (range[1] - range[0]) / (2 * times.length); // room for half a bar at both ends
    range[0] -= half;
    range[1] += half;
  }
  const top = niceTop(Math.max(limit || 0, ...series.flatMap((one) => one.points.map(([, value]) => value))), format);
  const inner = {
    width: Math.max(width - MARGIN.left - MARGIN.right, 40),
    height: height - MARGIN.top - MARGIN.bottom,
  };
  const x = (ms) => MARGIN.left + (inner.width * (ms - range[0])) / Math.max(range[1] - range[0], 1);
  const y = (value) => MARGIN.top + inner.height * (1 - value / top);
  const frame = { x, y, inner, range, top, places: times.length };
  return h(
    "figure",
    { class: "chart", key: `chart-${id}` },
    h("figcaption", null, h("span", { class: "chart-title" }, label), series.length > 1 ? chartLegend(series) : null),
    h(
      "div",
      { class: "chart-body", style: { height: `${height}px` } },
      s(
        "svg",
        {
          width,
          height,
          viewBox: `0 0 ${width} ${height}`,
          role: "img",
          "aria-label": `${label} over time`,
          onpointermove: (event) => hover(id, event),
          onpointerleave: () => leave(id),
        },
        grid(frame, format, width),
        limit
          ? s("line", { class: "limit", x1: MARGIN.left, x2: MARGIN.left + inner.width, y1: y(limit), y2: y(limit) })
          : null,
        series.map((one) => shape(one, frame)),
        crosshair(id, series, frame, height),
      ),
      tooltip(id, series, frame, format, width),
    ),
  );
}

function chartLegend(series) {
  return h(
    "span",
    { class: "legend" },
    series.map((one) => h("span", null, h("i", { class: `tone-${one.tone}` }), one.label)),
  );
}

function grid({ x, y, inner, range, top }, format, width) {
  const steps = [0, 0.25, 0.5, 0.75, 1];
  const columns = width < 480 ? 3 : 5;
  const span = range[1] - range[0];
  const write = span > 4 * 3600 * 1000 ? minuteOfDay : timeOfDay;
  return s(
    "g",
    { class: "grid" },
    steps.map((step) =>
      s("line", { x1: MARGIN.left, x2: MARGIN.left + inner.width, y1: y(top * step), y2: y(top * step) }),
    ),
    steps
      .filter((step) => step !== 0.25 && step !== 0.75)
      .map((step) =>
        s("text", { x: MARGIN.left - 8, y: y(top * step) + 4, "text-anchor": "end" }, round(format(top * step))),
      ),
    Array.from({ length: columns }, (_, index) => {
      const ms = range[0] + (span * index) / (columns - 1);
      const anchor = index === 0 ? "start" : index === columns - 1 ? "end" : "middle";
      return s("text", { x: x(ms), y: MARGIN.top + inner.height + 17, "text-anchor": anchor }, write(ms));
    }),
  );
}

function shape({ points, tone, kind = "line" }, { x, y, inner, places }) {
  if (points.length === 0) return null;
  const base = MARGIN.top + inner.height;
  if (kind === "bars") {
    const wide = Math.max(Math.min((inner.width / places) * 0.6, 14), 1.5);
    return s(
      "g",
      { class: `bars tone-${tone}` },
      points.map(([ms, value]) =>
        s("rect", { x: x(ms) - wide / 2, y: y(value), width: wide, height: Math.max(base - y(value), 0) }),
      ),
    );
  }
  if (kind === "dots") {
    return s(
      "g",
      { class: `dots tone-${tone}` },
      points.map(([ms, value]) => s("circle", { cx: x(ms), cy: y(value), r: 4 })),
    );
  }
  const line = points
    .map(([ms, value], index) => `${index ? "L" : "M"}${x(ms).toFixed(1)} ${y(value).toFixed(1)}`)
    .join("");
  return s(
    "g",
    { class: `tone-${tone}` },
    kind === "area"
      ? s("path", {
          class: "area",
          d: `${line}L${x(points[points.length - 1][0]).toFixed(1)} ${base}L${x(points[0][0]).toFixed(1)} ${base}Z`,
        })
      : null,
    s("path", { class: "line", d: line }),
  );
}

function hover(id, event) {
  const box = event.currentTarget.getBoundingClientRect();
  hovered.set(id, event.clientX - box.left);
  redraw();
}

function leave(id) {
  hovered.delete(id);
  redraw();
}

function nearest(id, series, frame) {
  const at = hovered.get(id);
  if (at === undefined) return null;
  const times = [...new Set(series.flatMap((one) => one.points.map(([ms]) => ms)))];
  return times.reduce((best, ms) => (Math.abs(frame.x(ms) - at) < Math.abs(frame.x(best) - at) ? ms : best), times[0]);
}

function crosshair(id, series, frame, height) {
  const ms = nearest(id, series, frame);
  if (ms === null) return null;
  const x = frame.x(ms);
  return s("line", { class: "crosshair", x1: x, x2: x, y1: MARGIN.top, y2: height - MARGIN.bottom });
}

function tooltip(id, series, frame, format, width) {
  const ms = nearest(id, series, frame);
  if (ms === null) return null;
  const left = frame.x(ms);
  const side =
    left > width / 2 ? { right: `${(width - left + 10).toFixed(0)}px` } : { left: `${(left + 10).toFixed(0)}px` };
  const values = series.map((one) => [one, one.points.find(([at]) => at === ms)]).filter(([, point]) => point);
  return h(
    "div",
    { class: "tooltip", style: side, "aria-hidden": "true" },
    h("b", null, timeOfDay(ms)),
    values.map(([one, [, value]]) =>
      h("div", null, h("i", { class: `tone-${one.tone}` }), `${one.label} `, h("b", null, format(value))),
    ),
  );
}

/** "50.0 k" -> "50 k": numbers at an axis do not move. */
function round(text) {
  return text.replace(/\.0(?!\d)/, "");
}

/** The end of an axis: a round number above the largest value. */
export function niceTop(largest, format) {
  if (!(largest > 0)) return format === count ? 10 : 1;
  const power = 10 ** Math.floor(Math.log10(largest));
  return (
    [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((step) => step >= largest * 1.02) || 20 * power
  );
}

/** Bars side by side; more values than there is room for are added up in groups. `mean` is drawn as a line. */
export function barChart({ id, label, width, height = 180, values, mean, describe }) {
  const room = Math.max(width - MARGIN.left - MARGIN.right, 40);
  const grouped = Math.max(1, Math.ceil(values.length / (room / 4)));
  const bars = [];
  for (let start = 0; start < values.length; start += grouped) {
    const part = values.slice(start, start + grouped);
    bars.push({
      first: start,
      last: start + part.length - 1,
      value: part.reduce((sum, value) => sum + value, 0) / part.length,
    });
  }
  const top = niceTop(Math.max(...bars.map((bar) => bar.value), mean || 0), count);
  const tall = height - MARGIN.top - MARGIN.bottom;
  const step = room / bars.length;
  const y = (value) => MARGIN.top + tall * (1 - value / top);
  const name = (bar) => (bar.first === bar.last ? `${bar.first}` : `${bar.first}–${bar.last}`);
  const last = bars.length - 1;
  const marks = [...new Set([0, Math.round(last / 4), Math.round(last / 2), Math.round((3 * last) / 4), last])];
  return h(
    "figure",
    { class: "chart", key: `chart-${id}` },
    h("figcaption", null, h("span", { class: "chart-title" }, label)),
    s(
      "svg",
      { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
      s(
        "g",
        { class: "grid" },
        [0, 0.5, 1].map((share) => [
          s("line", { x1: MARGIN.left, x2: MARGIN.left + room, y1: y(top * share), y2: y(top * share) }),
          s("text", { x: MARGIN.left - 8, y: y(top * share) + 4, "text-anchor": "end" }, round(count(top * share))),
        ]),
        marks.map((index) =>
          s(
            "text",
            { x: MARGIN.left + step * (index + 0.5), y: height - 7, "text-anchor": "middle" },
            name(bars[index]),
          ),
        ),
      ),
      bars.map((bar, index) =>
        s(
          "rect",
          {
            class: mean && bar.value > 3 * mean ? "hot-bar" : "cool-bar",
            x: (MARGIN.left + step * index + step * 0.1).toFixed(2),
            width: Math.max(step * 0.8, 1).toFixed(2),
            y: y(bar.value).toFixed(2),
            height: Math.max(MARGIN.top + tall - y(bar.value), bar.value > 0 ? 1 : 0).toFixed(2),
          },
          s("title", null, describe(name(bar), bar.value)),
        ),
      ),
      mean ? s("line", { class: "limit", x1: MARGIN.left, x2: MARGIN.left + room, y1: y(mean), y2: y(mean) }) : null,
    ),
  );
}

/** A small line beside a number. `zero`: its lower end is 0; else it shows how much the number has moved. */
export function sparkline(points, zero = true, width = 96, height = 24) {
  if (points.length < 2) return s("svg", { class: "spark", width, height, "aria-hidden": "true" });
  const recent = points.slice(-120);
  const values = recent.map(([, value]) => value);
  const top = Math.max(...values, 1e-9);
  // not more than twentyfold: what hardly moves should look like it
  const bottom = zero ? 0 : Math.min(...values, top * 0.95);
  const [first, end] = [recent[0][0], recent[recent.length - 1][0]];
  const line = recent
    .map(
      ([ms, value], index) =>
        `${index ? "L" : "M"}${((width * (ms - first)) / Math.max(end - first, 1)).toFixed(1)} ${(height - 2 - ((height - 4) * Math.max(value - bottom, 0)) / (top - bottom)).toFixed(1)}`,
    )
    .join("");
  return s(
    "svg",
    { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
    s("path", { d: line }),
  );
}
