// The graph of a job: each chain of operators is a box with live numbers, each exchange between them a line.

import { DASH, bytes, count, duration, exact, percent, rate, time, times, watermark } from "./format.js";
import { layout } from "./layout.js";
import { link } from "./router.js";
import { h, s } from "./vdom.js";
import { card, cut, pill, table, timeBar, timeBarLegend } from "./widgets.js";

const BOX_WIDTH = 256;
const BOX_BASE = 134; // head, numbers, bar and watermark
const LINE = 21; // one operator of the chain
const SHOWN_OPERATORS = 5;
const SMALLEST = 0.72; // below that the boxes cannot be read: rather scroll

/** The names of the operators in a chain. */
export function operatorNames(vertex) {
  const names = (vertex.operators || []).map((operator) => operator.name);
  return names.length ? names : String(vertex.name).split(" -> ");
}

export function graphTab(jid, report, selected, width) {
  const vertices = report.vertices || [];
  if (!vertices.length) return card("Graph", h("p", { class: "quiet" }, "The job has not reported its graph yet."));
  const vertex = vertices.find((one) => one.id === selected);
  return [
    card("Graph", drawing(jid, vertices, selected, width - 34), timeBarLegend()),
    vertex ? details(vertex, jid) : h("p", { class: "quiet", key: "hint" }, "Choose a box to see its subtasks."),
  ];
}

function drawing(jid, vertices, selected, width) {
  const boxes = vertices.map((vertex) => ({
    id: vertex.id,
    width: BOX_WIDTH,
    height: BOX_BASE + LINE * shownLines(vertex),
    inputs: vertex.inputs || [],
  }));
  let plan = layout(boxes);
  let down = false;
  if (plan.width * SMALLEST > width) {
    const other = layout(boxes, true);
    if (other.width < plan.width) [plan, down] = [other, true];
  }
  const scale = Math.max(Math.min(width / plan.width, 1), SMALLEST);
  const [wide, tall] = [plan.width * scale, plan.height * scale];
  return h(
    "div",
    { class: "graph", tabindex: "0", role: "region", "aria-label": "Graph of the job" },
    h(
      "div",
      { class: "graph-size", style: { width: `${wide}px`, height: `${tall}px` } },
      h(
        "div",
        {
          class: "graph-plane",
          style: { width: `${plan.width}px`, height: `${plan.height}px`, transform: `scale(${scale})` },
        },
        s(
          "svg",
          { class: "graph-lines", width: plan.width, height: plan.height, "aria-hidden": "true" },
          arrowHead(),
          plan.lines.map((line) => edge(line, down)),
        ),
        plan.lines.map((line) => edgeLabel(line, vertices)),
        vertices.map((vertex) =>
          box(vertex, plan.places.get(vertex.id), boxes.find((one) => one.id === vertex.id).height, jid, selected),
        ),
      ),
    ),
  );
}

function shownLines(vertex) {
  const names = operatorNames(vertex);
  return (
    Math.min(names.length, SHOWN_OPERATORS + (names.length === SHOWN_OPERATORS + 1 ? 1 : 0)) +
    (names.length > SHOWN_OPERATORS + 1 ? 1 : 0)
  );
}

function arrowHead() {
  return s(
    "defs",
    null,
    s(
      "marker",
      {
        id: "arrow",
        viewBox: "0 0 8 8",
        refX: 7,
        refY: 4,
        markerWidth: 5.5,
        markerHeight: 5.5,
        orient: "auto-start-reverse",
      },
      s("path", { d: "M0 0L8 4L0 8z" }),
    ),
  );
}

function edge(line, down) {
  const [first, ...rest] = line.points;
  let d = `M${first[0]} ${first[1]}`;
  let [x, y] = first;
  for (const [nextX, nextY] of rest) {
    const [middleX, middleY] = [(x + nextX) / 2, (y + nextY) / 2];
    d += down
      ? `C${x} ${middleY} ${nextX} ${middleY} ${nextX} ${nextY}`
      : `C${middleX} ${y} ${middleX} ${nextY} ${nextX} ${nextY}`;
    [x, y] = [nextX, nextY];
  }
  return s("path", { class: "edge", d, "marker-end": "url(#arrow)", key: `${line.from}-${line.to}` });
}

function edgeLabel(line, vertices) {
  const strategy = line.input["ship-strategy"];
  if (!strategy) return null;
  const [last, before] = [line.points[line.points.length - 1], line.points[line.points.length - 2]];
  const from = vertices.find((vertex) => vertex.id === line.from);
  return h(
    "span",
    {
      class: "edge-label",
      key: `label-${line.from}-${line.to}`,
      style: {
        left: `${before[0] + 0.46 * (last[0] - before[0])}px`,
        top: `${before[1] + 0.46 * (last[1] - before[1])}px`,
      },
      title: `from ${from.name}`,
    },
    strategy,
  );
}

function box(vertex, { x, y }, height, jid, selected) {
  const chosen = vertex.id === selected;
  const names = operatorNames(vertex);
  const shown = names.length > SHOWN_OPERATORS + 1 ? names.slice(0, SHOWN_OPERATORS) : names;
  const isSource = !(vertex.inputs || []).length;
  const pressed = vertex["backpressure-ratio"] > 0.5 ? " is-pressed" : "";
  const number = (label, value, whole) => h("div", { title: whole }, h("span", null, label), h("b", null, value));
  return h(
    "a",
    {
      class: `vertex${chosen ? " chosen" : ""}${pressed}`,
      key: `box-${vertex.id}`,
      href: chosen ? link("jobs", jid, "graph") : link("jobs", jid, "graph", vertex.id),
      "aria-current": chosen ? "true" : null,
      "data-vertex": vertex.id,
      style: { left: `${x}px`, top: `${y}px`, width: `${BOX_WIDTH}px`, height: `${height}px` },
    },
    h(
      "div",
      { class: "vertex-head" },
      pill(vertex.status),
      h("span", { class: "parallelism", title: `parallelism ${vertex.parallelism}` }, `×${vertex.parallelism}`),
    ),
    h(
      "ul",
      { class: "chain" },
      shown.map((name) => h("li", { title: name }, name)),
      names.length > shown.length ? h("li", { class: "more" }, `and ${names.length - shown.length} more`) : null,
    ),
    h(
      "div",
      { class: "vertex-numbers" },
      number(
        "in",
        isSource && !vertex["records-in-per-second"] ? DASH : rate(vertex["records-in-per-second"]),
        `${exact(vertex.metrics?.["read-records"])} records read`,
      ),
      number(
        "out",
        rate(vertex["records-out-per-second"]),
        `${exact(vertex.metrics?.["write-records"])} records written`,
      ),
      number("state", vertex["state-bytes"] ? bytes(vertex["state-bytes"]) : DASH, "size of its state"),
    ),
    timeBar(vertex["busy-ratio"], vertex["backpressure-ratio"], vertex["idle-ratio"]),
    h(
      "div",
      { class: "vertex-watermark", title: "watermark (event time, UTC)" },
      h("span", { "aria-hidden": "true" }, "◷"),
      watermark(vertex.watermark),
    ),
  );
}

function details(vertex, jid) {
  const columns = [
    { label: "Subtask", class: "number", width: "84px" },
    { label: "State", width: "130px" },
    { label: "Host", width: "160px" },
    { label: "Records in", class: "number" },
    { label: "Records out", class: "number" },
    { label: "Bytes in", class: "number" },
    { label: "Bytes out", class: "number" },
    { label: "Busy time", class: "number" },
    { label: "Last 10 s", width: "150px" },
    { label: "Attempt", class: "number", width: "84px" },
  ];
  const rows = (vertex.subtasks || []).map((task) => ({
    key: task.subtask,
    cells: [
      task.subtask,
      pill(task.status),
      cut(task.host || DASH),
      count(task["read-records"]),
      count(task["write-records"]),
      bytes(task["read-bytes"]),
      bytes(task["write-bytes"]),
      duration(task["accumulated-busy-time"]),
      timeBar(task["busy-ratio"], task["backpressure-ratio"], task["idle-ratio"]),
      task.attempt,
    ],
  }));
  const fact = (name, value) => h("div", null, h("dt", null, name), h("dd", null, value));
  const totals = vertex.metrics || {};
  return h(
    "section",
    { class: "card", key: `details-${vertex.id}`, "aria-label": "Details" },
    h(
      "div",
      { class: "card-head" },
      h("h2", { class: "cut", title: vertex.name }, vertex.name),
      h("a", { class: "button small", href: link("jobs", jid, "graph") }, "Close"),
    ),
    h(
      "dl",
      { class: "facts" },
      fact("Records in", exact(totals["read-records"])),
      fact("Records out", exact(totals["write-records"])),
      fact("Busy", percent(vertex["busy-ratio"])),
      fact("Back-pressured", percent(vertex["backpressure-ratio"])),
      fact("Watermark", watermark(vertex.watermark)),
      fact("State", bytes(vertex["state-bytes"])),
      fact("Key-group skew", vertex["key-group-skew"] == null ? DASH : times(vertex["key-group-skew"])),
      fact("Started", time(vertex["start-time"])),
    ),
    h(
      "details",
      { class: "operators" },
      h("summary", null, `Operators of this chain (${(vertex.operators || []).length})`),
      table(
        [{ label: "Operator" }, { label: "uid" }, { label: "Id", class: "mono" }],
        (vertex.operators || []).map((operator) => ({
          key: operator.id,
          cells: [operator.name, operator.uid || DASH, operator.id],
        })),
        "Operators of the chain",
      ),
    ),
    table(columns, rows, `Subtasks of ${vertex.name}`),
  );
}
