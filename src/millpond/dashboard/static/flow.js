// Flow control: does the job keep up, how much may the next batch read, how long do batches take.

import { chartGrid, timeChart } from "./charts.js";
import { DASH, count, duration, percent, rate } from "./format.js";
import { remembered } from "./series.js";
import { h } from "./vdom.js";
import { card, cut, table, tile, timeBar, timeBarLegend } from "./widgets.js";

export function flowTab(jid, report, width) {
  const flow = report.flow || {};
  const latency = flow["latency-ms"] || {};
  const target = flow["target-latency-ms"];
  const chart = (wide, id, label, format, series, limit) =>
    timeChart({
      id: `flow-${id}`,
      label,
      width: wide,
      height: 180,
      format,
      series: series.map(([name, tone, key]) => ({ label: name, tone, points: remembered(`${jid}/${key}`) })),
      limit,
    });
  return [
    h(
      "div",
      { class: "tiles small", key: "flow-tiles" },
      tile(
        "Status",
        flow.backpressured ? "Back-pressured" : "Keeping up",
        flow.backpressured ? "more input waits than a batch may take" : "all waiting input is taken",
        flow.backpressured ? "pressed" : "running",
      ),
      tile("Credits", count(flow.credits), "records for the next batch"),
      tile("Last batch", duration(flow["batch-duration-ms"]), `${count(flow["batch-records"])} records`),
      tile(
        "Target latency",
        target == null ? DASH : duration(target),
        target == null ? "none set" : latency.p99 > target ? "p99 is above it" : "p99 is within it",
        target != null && latency.p99 > target ? "pressed" : null,
      ),
      tile("Latency, median", duration(latency.p50), `p90 ${duration(latency.p90)}, p99 ${duration(latency.p99)}`),
    ),
    card(
      "Since this page was opened",
      chartGrid(width - 34, 2, (wide) => [
        chart(wide, "throughput", "Records per second", rate, [["records/s", "one", "throughput"]]),
        chart(
          wide,
          "latency",
          target == null ? "Latency" : "Latency (dashed: target)",
          duration,
          [
            ["p50", "one", "p50"],
            ["p90", "two", "p90"],
            ["p99", "three", "p99"],
          ],
          target,
        ),
        chart(wide, "backlog", "Backlog and credits, in records", count, [
          ["backlog", "two", "backlog"],
          ["credits", "one", "credits"],
        ]),
        chart(
          wide,
          "batch",
          target == null ? "Duration of batches" : "Duration of batches (dashed: target)",
          duration,
          [["batch", "three", "batch"]],
          target,
        ),
      ]),
    ),
    card("Where time goes", shares(report.vertices || []), timeBarLegend()),
  ];
}

function shares(vertices) {
  const columns = [
    { label: "Chain" },
    { label: "Last 10 s", width: "26%" },
    { label: "Busy", class: "number", width: "84px" },
    { label: "Back-pressured", class: "number", width: "130px" },
    { label: "Idle", class: "number", width: "84px" },
    { label: "In", class: "number", width: "110px" },
    { label: "Out", class: "number", width: "110px" },
  ];
  const rows = vertices.map((vertex) => ({
    key: vertex.id,
    cells: [
      cut(vertex.name),
      timeBar(vertex["busy-ratio"], vertex["backpressure-ratio"], vertex["idle-ratio"]),
      percent(vertex["busy-ratio"]),
      percent(vertex["backpressure-ratio"]),
      percent(vertex["idle-ratio"]),
      rate(vertex["records-in-per-second"]),
      rate(vertex["records-out-per-second"]),
    ],
  }));
  return table(columns, rows, "Busy, back-pressured and idle time per chain");
}
