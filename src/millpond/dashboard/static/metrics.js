// All metrics of a job by name.

import { exact } from "./format.js";
import { h } from "./vdom.js";
import { card, cut, empty, filterBox, table } from "./widgets.js";

let filter = "";

export function metricsTab(report, ui) {
  const all = Object.entries(report.metrics || {}).sort(([left], [right]) => left.localeCompare(right));
  if (!all.length)
    return card(
      "Metrics",
      empty("No metrics yet.", "Functions register them with get_metrics_group() of their runtime context."),
    );
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = all.filter(([name]) => words.every((word) => name.toLowerCase().includes(word)));
  const change = (text) => {
    filter = text;
    ui.redraw();
  };
  return card("Metrics", shown.length ? list(shown) : h("p", { class: "quiet" }, "No metric matches the filter."), [
    h("span", { class: "quiet" }, `${shown.length} of ${all.length}`),
    filterBox("Filter metrics", filter, change),
  ]);
}

function list(shown) {
  const columns = [
    { label: "Operator", width: "42%" },
    { label: "Metric" },
    { label: "Value", class: "number", width: "220px" },
  ];
  const rows = shown.map(([name, value]) => {
    const dot = name.lastIndexOf(".");
    return {
      key: name,
      cells: [cut(dot > 0 ? name.slice(0, dot) : "job"), cut(name.slice(dot + 1), "mono"), exact(value)],
    };
  });
  return table(columns, rows, "Metrics");
}
