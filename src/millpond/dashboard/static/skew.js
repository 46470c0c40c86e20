// How evenly records are spread over key groups, and which keys are the hottest.

import { barChart } from "./charts.js";
import { count, percent, times } from "./format.js";
import { h } from "./vdom.js";
import { card, cut, empty, meter, table } from "./widgets.js";

const WIDE = 900;
const SKEWED = 3; // largest key group against the mean

export function skewTab(report, width) {
  const keyed = (report.vertices || []).filter((vertex) => (vertex["key-groups"] || []).length);
  if (!keyed.length)
    return card(
      "Skew",
      empty("Nothing to compare yet.", "This job has no keyed operators, or they have not had records."),
    );
  return keyed.map((vertex) =>
    h("section", { class: "card", key: `skew-${vertex.id}` }, head(vertex), body(vertex, width)),
  );
}

function head(vertex) {
  const skew = vertex["key-group-skew"];
  return h(
    "div",
    { class: "card-head" },
    h("h2", { class: "cut", title: vertex.name }, vertex.name),
    skew == null
      ? null
      : h(
          "span",
          { class: `tag ${skew > SKEWED ? "warn" : "calm"}` },
          skew > SKEWED
            ? `skewed: the largest group has ${times(skew)} the mean`
            : `even: the largest group has ${times(skew)} the mean`,
        ),
  );
}

function body(vertex, width) {
  const groups = vertex["key-groups"];
  const total = groups.reduce((sum, value) => sum + value, 0);
  const mean = total / groups.length;
  const keysWidth = 400;
  const wide = width > WIDE;
  const hottest = vertex["hottest-keys"] || [];
  return h(
    "div",
    { class: wide ? "skew-pair" : null },
    barChart({
      id: `groups-${vertex.id}`,
      label: `Records per key group (${groups.length} groups; halved every minute; dashed: mean)`,
      width: wide ? width - 34 - keysWidth - 28 : width - 34,
      height: 372,
      values: groups,
      mean,
      describe: (name, value) =>
        `key group ${name}: ${count(value)} records, ${times(mean ? value / mean : 0)} the mean`,
    }),
    h(
      "div",
      null,
      hottest.length ? keys(hottest, total, vertex.name) : h("p", { class: "quiet" }, "No hot keys known yet."),
    ),
  );
}

function keys(hottest, total, name) {
  const most = hottest[0][1] || 1;
  const columns = [
    { label: "Hottest keys" },
    { label: "Records", class: "number", width: "84px" },
    { label: "Share", width: "120px" },
  ];
  const rows = hottest.map(([key, records], index) => ({
    key: `${index}`,
    cells: [
      cut(key, "mono"),
      count(records),
      h(
        "span",
        { class: "with-meter" },
        meter(records / most, `${percent(records / total)} of all records`),
        percent(total ? records / total : 0),
      ),
    ],
  }));
  return table(columns, rows, `Hottest keys of ${name}`);
}
