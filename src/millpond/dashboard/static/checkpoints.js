// Checkpoints of a job: counts, size and duration over time, and each of the last hundred.

import { timeChart } from "./charts.js";
import { bytes, count, duration, exact, time } from "./format.js";
import { h } from "./vdom.js";
import { card, empty, table, tile } from "./widgets.js";

const WIDE = 900;

export function checkpointsTab(report, width) {
  const { counts = {}, history = [] } = report.checkpoints || {};
  if (!history.length) {
    return card("Checkpoints", empty("No checkpoint yet.", "The first one follows the first batches; execution.checkpointing.interval sets how often."));
  }
  const half = width > WIDE ? Math.floor((width - 34 - 24) / 2) : width - 34;
  const made = history.filter((one) => !one.is_savepoint);
  const points = (field, of = made) => of.map((one) => [one.started_ms, one[field]]);
  return [
    h(
      "div",
      { class: "tiles small", key: "counts" },
      tile("Completed", exact(counts.completed)),
      tile("In progress", exact(counts.in_progress)),
      tile("Failed", exact(counts.failed), null, counts.failed ? "failed" : null),
      tile("Restored", exact(counts.restored)),
      tile("Mean duration", duration(mean(made.map((one) => one.duration_ms))), `of the last ${made.length}`),
      tile("Mean written", bytes(mean(made.map((one) => one.bytes_written))), `of the last ${made.length}`),
    ),
    card(
      "Size and duration",
      h(
        "div",
        { class: "chart-pair" },
        timeChart({
          id: "checkpoint-size",
          label: "Size",
          width: half,
          format: bytes,
          series: [
            { label: "full", tone: "one", kind: "area", points: points("bytes_full") },
            { label: "written", tone: "two", kind: "bars", points: points("bytes_written") },
          ],
        }),
        timeChart({ id: "checkpoint-duration", label: "Duration", width: half, format: duration, series: [{ label: "duration", tone: "three", kind: "bars", points: points("duration_ms") }] }),
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
