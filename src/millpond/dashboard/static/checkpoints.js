// Checkpoints of a job: counts, size and duration over time, and each of the last hundred.

import { chartGrid, timeChart } from "./charts.js";
import { bytes, count, duration, exact, time } from "./format.js";
import { h } from "./vdom.js";
import { card, empty, table, tile } from "./widgets.js";

export function checkpointsTab(report, width) {
  const { counts = {}, history = [] } = report.checkpoints || {};
  if (!history.length) {
    return card(
      "Checkpoints",
      empty(
        "No checkpoint yet.",
        "The first one follows the first batch: every batch is a checkpoint.",
      ),
    );
  }
  const made = history.filter((one) => !one.is_savepoint);
  const saved = history.filter((one) => one.is_savepoint);
  const series = (field, tone, kind, of = made) => ({
    label: of === saved ? "savepoint" : "checkpoint",
    tone,
    kind,
    points: of.map((one) => [one.started_ms, one[field]]),
  });
  const chart = (wide, id, label, format, all) =>
    timeChart({
      id: `checkpoint-${id}`,
      label,
      width: wide,
      height: 190,
      format,
      series: all.filter((one) => one.points.length),
    });
  return [
    h(
      "div",
      { class: "tiles small", key: "counts" },
      tile("Completed", exact(counts.completed), "since the job began"),
      tile("In progress", exact(counts.in_progress), "right now"),
      tile("Failed", exact(counts.failed), "since the job began", counts.failed ? "failed" : null),
      tile("Restored", exact(counts.restored), "times from a checkpoint"),
      tile("Mean duration", duration(mean(made.map((one) => one.duration_ms))), `of the last ${made.length}`),
      tile("Mean written", bytes(mean(made.map((one) => one.bytes_written))), `of the last ${made.length}`),
    ),
    card(
      "Size and duration",
      chartGrid(
        width - 34,
        3,
        (wide) => [
          chart(wide, "duration", "Duration", duration, [
            series("duration_ms", "three", "bars"),
            series("duration_ms", "four", "bars", saved),
          ]),
          chart(wide, "written", "Bytes written", bytes, [
            series("bytes_written", "two", "bars"),
            series("bytes_written", "four", "bars", saved),
          ]),
          chart(wide, "full", "Full size", bytes, [series("bytes_full", "one", "area")]),
        ],
        330,
      ),
    ),
    card("The last ones", list(history)),
  ];
}

function mean(values) {
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
}

function list(history) {
  const columns = [
    { label: "Id", class: "number", width: "80px" },
    { label: "Kind", width: "120px" },
    { label: "Started", width: "170px" },
    { label: "Duration", class: "number" },
    { label: "Written", class: "number", title: "bytes that this checkpoint added" },
    { label: "Full size", class: "number", title: "all state, with what earlier checkpoints wrote" },
    { label: "Records", class: "number", title: "of the batches since the one before" },
  ];
  const rows = [...history].reverse().map((one) => ({
    key: `${one.id}-${one.is_savepoint}`,
    cells: [
      exact(one.id),
      one.is_savepoint ? h("span", { class: "tag" }, "savepoint") : "checkpoint",
      time(one.started_ms),
      duration(one.duration_ms),
      bytes(one.bytes_written),
      bytes(one.bytes_full),
      count(one.records),
    ],
  }));
  return h("div", { class: "tall" }, table(columns, rows, "Checkpoints, newest first"));
}
