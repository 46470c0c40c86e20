// How large the state of each operator is, and which one grows.

import { sparkline, timeChart } from "./charts.js";
import { bytes, bytesRate, percent } from "./format.js";
import { operatorNames } from "./graph.js";
import { remembered } from "./series.js";
import { h } from "./vdom.js";
import { card, cut, empty, meter, table } from "./widgets.js";

const TONES = ["one", "two", "three", "four", "five", "six"];
const FAST = 1 / 3600; // grows by its own size within an hour

export function stateTab(jid, report, width) {
  const withState = (report.vertices || [])
    .filter((vertex) => vertex.keyed || vertex["state-bytes"] > 0)
    .sort((left, right) => (right["state-bytes"] || 0) - (left["state-bytes"] || 0));
  if (!withState.length) return card("State", empty("No operator of this job keeps state."));
  const total = withState.reduce((sum, vertex) => sum + (vertex["state-bytes"] || 0), 0);
  const series = withState
    .slice(0, TONES.length)
    .map((vertex, index) => ({
      label: shortName(vertex),
      tone: TONES[index],
      points: remembered(`${jid}/${vertex.id}/state`),
    }));
  return [
    card(
      "Size over time",
      timeChart({
        id: "state",
        label: "State per chain, since this page was opened",
        width: width - 34,
        height: 230,
        format: bytes,
        series,
      }),
    ),
    card("Operators", list(jid, withState, total)),
    h(
      "p",
      { class: "quiet", key: "advice" },
      "State that only ever grows is kept for keys that never come back: give it a time to live (StateTtlConfig), or delete it in a timer.",
    ),
  ];
}

function shortName(vertex) {
  const names = operatorNames(vertex);
  return names[0].length > 40 ? `${names[0].slice(0, 39)}…` : names[0];
}

function list(jid, vertices, total) {
  const columns = [
    { label: "Chain" },
    { label: "Size", class: "number", width: "110px" },
    { label: "Share", width: "150px" },
    { label: "Growth", class: "number", width: "130px" },
    { label: "In an hour", class: "number", width: "130px", title: "size in an hour if it goes on like this" },
    { label: "Since opened", width: "130px" },
  ];
  const rows = vertices.map((vertex) => {
    const size = vertex["state-bytes"];
    const growth = vertex["state-growth-per-second"];
    const fast = growth > 0 && growth > size * FAST;
    const share = total ? size / total : 0;
    return {
      key: vertex.id,
      cells: [
        cut(vertex.name),
        bytes(size),
        h("span", { class: "with-meter" }, meter(share, `${percent(share)} of the job's state`), percent(share)),
        h("span", { class: fast ? "attention" : null }, bytesRate(growth)),
        growth == null ? null : bytes(Math.max(size + growth * 3600, 0)),
        sparkline(remembered(`${jid}/${vertex.id}/state`), false),
      ],
    };
  });
  return table(columns, rows, "State per chain");
}
