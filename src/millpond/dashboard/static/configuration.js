// Settings of a job, where it runs, and what of it can be queried.

import { DASH, bytes, exact, time } from "./format.js";
import { h } from "./vdom.js";
import { card, cut, filterBox, table } from "./widgets.js";

let filter = "";

export function configurationTab(report, ui) {
  const settings = Object.entries(report.settings || {}).sort(([left], [right]) => left.localeCompare(right));
  const shown = settings.filter(([key, value]) => `${key} ${value}`.toLowerCase().includes(filter.toLowerCase()));
  const change = (text) => {
    filter = text;
    ui.redraw();
  };
  const queryable = Object.entries(report.queryable || {});
  return [
    card("Job", facts(report)),
    card(
      "Settings",
      shown.length
        ? table(
            [{ label: "Key", width: "44%" }, { label: "Value" }],
            shown.map(([key, value]) => ({
              key,
              cells: [cut(key, "mono"), h("span", { class: "mono wrap" }, String(value))],
            })),
            "Settings of the job",
          )
        : h(
            "p",
            { class: "quiet" },
            settings.length ? "No setting matches the filter." : "The job has only default settings.",
          ),
      settings.length ? filterBox("Filter settings", filter, change) : null,
    ),
    queryable.length ? card("Queryable state", queryables(report, queryable)) : null,
    (report.executors || []).length ? card("Executors", executors(report.executors)) : null,
  ];
}

function facts(report) {
  const fact = (name, value) =>
    h("div", { key: name }, h("dt", null, name), h("dd", { title: String(value ?? "") }, value ?? DASH));
  const states = Object.entries(report.timestamps || {})
    .filter(([, ms]) => ms > 0)
    .sort(([, left], [, right]) => left - right);
  return h(
    "dl",
    { class: "facts" },
    fact("Id", report.jid),
    fact("Folder", report.folder),
    fact("Driver", report.host ? `${report.host}, process ${report.pid}` : null),
    fact("Parallelism", `${report.parallelism} (at most ${report["max-parallelism"]})`),
    fact("Restart strategy", report["restart-strategy"]),
    fact("Attempt", exact(report.attempt)),
    states.map(([state, ms]) => fact(state.toLowerCase(), time(ms))),
  );
}

function queryables(report, queryable) {
  const columns = [{ label: "Name" }, { label: "Kind", width: "140px" }, { label: "State" }, { label: "Operator" }];
  return [
    table(
      columns,
      queryable.map(([name, one]) => ({
        key: name,
        cells: [cut(name, "mono"), one.kind, cut(one.state, "mono"), cut(one.operator)],
      })),
      "Queryable state",
    ),
    h("p", { class: "quiet" }, "Look up: ", h("code", null, `millpond state query ${report.jid} NAME KEY`)),
  ];
}

function executors(found) {
  const columns = [
    { label: "Id", width: "110px" },
    { label: "Host" },
    { label: "Port", class: "number", width: "110px" },
    { label: "Cores", class: "number", width: "90px" },
    { label: "Slots", class: "number", width: "90px" },
    { label: "Memory", class: "number", width: "120px" },
  ];
  return table(
    columns,
    found.map((one) => ({
      key: one.id,
      cells: [one.id, cut(one.host), one.port, exact(one.cores), exact(one.slots), bytes(one["memory-bytes"])],
    })),
    "Executors of the job",
  );
}
