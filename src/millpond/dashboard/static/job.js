// One job: who it is and how it goes, buttons, and a tab for each side of it.

import { askCancel, askSavepoint, askStop, running as runningOperations } from "./actions.js";
import * as api from "./api.js";
import { checkpointsTab } from "./checkpoints.js";
import { configurationTab } from "./configuration.js";
import { exceptionsTab } from "./exceptions.js";
import { flowTab } from "./flow.js";
import { DASH, bytes, clock, count, duration, plural, rate, time } from "./format.js";
import { graphTab } from "./graph.js";
import { metricsTab } from "./metrics.js";
import { ENDED } from "./overview.js";
import { link } from "./router.js";
import { savepointsTab } from "./savepoints.js";
import { remember } from "./series.js";
import { skewTab } from "./skew.js";
import { stateTab } from "./state.js";
import { h } from "./vdom.js";
import { card, copyButton, empty, pill, tile } from "./widgets.js";

const SILENT_MS = 10000; // reports come every second; after that something is wrong

const TABS = [
  ["graph", "Graph"],
  ["checkpoints", "Checkpoints"],
  ["savepoints", "Savepoints"],
  ["exceptions", "Exceptions"],
  ["state", "State"],
  ["skew", "Skew"],
  ["flow", "Flow"],
  ["metrics", "Metrics"],
  ["configuration", "Configuration"],
];

export const jobPage = {
  section: "jobs",
  title: (_, data) => data?.name || "Job",
  same: (before, now) => before.jid === now.jid,

  /** The dispatcher knows the state (a process that died cannot tell); the report has all else. */
  async load({ jid, tab }, signal) {
    const [job, report, history] = await Promise.all([
      api.get(api.path`jobs/${jid}`, signal),
      optional(api.get(api.path`jobs/${jid}/report`, signal)),
      tab === "exceptions" ? optional(api.get(api.path`jobs/${jid}/exceptions`, signal)) : null,
    ]);
    if (report) keep(jid, report);
    return { jid, job, report, history, name: job.name || report?.name || jid, state: job.state || report?.state };
  },

  render({ jid, tab = "graph", vertex }, data, ui) {
    return [
      header(data, ui),
      strip(data),
      tabs(jid, tab, data),
      h("div", { class: "tab", key: `tab-${tab}` }, body(jid, tab, vertex, data, ui)),
    ];
  },
};

async function optional(asked) {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof api.Refused && error.status === 404) return null;
    throw error;
  }
}

function keep(jid, report) {
  const at = report.heartbeat;
  const flow = report.flow || {};
  remember(`${jid}/throughput`, at, flow["records-per-second"]);
  remember(`${jid}/backlog`, at, flow["backlog-records"]);
  remember(`${jid}/credits`, at, flow.credits);
  remember(`${jid}/batch`, at, flow["batch-duration-ms"]);
  for (const name of ["p50", "p90", "p99"]) remember(`${jid}/${name}`, at, flow["latency-ms"]?.[name]);
  for (const vertex of report.vertices || []) remember(`${jid}/${vertex.id}/state`, at, vertex["state-bytes"]);
}

function header({ jid, job, report, name, state }, ui) {
  const over = ENDED.has(state);
  const now = job.now || report?.heartbeat || Date.now();
  const start = job["start-time"] ?? report?.["start-time"];
  const end = job["end-time"] ?? report?.["end-time"] ?? -1;
  const lasted = end > 0 ? end - start : now - start;
  const silent = !over && report && now - report.heartbeat > SILENT_MS;
  const busy = runningOperations(jid).length > 0;
  const button = (text, tone, action, title) =>
    h(
      "button",
      {
        type: "button",
        class: `button ${tone}`,
        onclick: () => action(jid, name, ui),
        disabled: over || state === "CANCELLING",
        title,
        "data-action": text.toLowerCase().replaceAll(" ", "-"),
      },
      text,
    );
  return h(
    "div",
    { class: "job-head", key: "head" },
    h(
      "nav",
      { class: "crumbs", "aria-label": "You are here" },
      h("a", { href: "#/" }, "Jobs"),
      " / ",
      h("span", { class: "mono" }, jid),
      copyButton(jid, "Copy id"),
    ),
    h(
      "div",
      { class: "job-title" },
      h("h1", { title: name }, name),
      pill(state),
      h(
        "div",
        { class: "job-buttons" },
        busy ? h("span", { class: "spinner", role: "status", title: "A savepoint is being taken" }) : null,
        ui.features["web-cancel"] === false
          ? null
          : [
              button("Savepoint", "", askSavepoint, "Take a savepoint; the job goes on"),
              button("Stop with savepoint", "", askStop, "Take a savepoint, then end the job"),
              button("Cancel", "danger-outline", askCancel, "End the job at once"),
            ],
      ),
    ),
    h(
      "div",
      { class: "job-facts" },
      h("span", null, "Started ", h("b", null, time(start))),
      end > 0 ? h("span", null, "Ended ", h("b", null, time(end))) : null,
      h("span", null, end > 0 ? "Ran for " : "Running for ", h("b", { class: "ticking" }, clock(lasted))),
      h("span", null, "Parallelism ", h("b", null, report?.parallelism ?? DASH)),
      h("span", { class: report?.restarts ? "attention" : null }, "Restarts ", h("b", null, report?.restarts ?? DASH)),
      report?.["job-type"] ? h("span", null, "Type ", h("b", null, report["job-type"].toLowerCase())) : null,
      silent
        ? h("span", { class: "attention" }, `Its driver was last heard ${clock(now - report.heartbeat)} ago`)
        : null,
    ),
  );
}

/** The few numbers that tell whether a job is well, above all tabs. */
function strip({ report, job, state: jobState }) {
  const over = ENDED.has(jobState);
  const flow = report?.flow || {};
  const history = report?.checkpoints?.history || [];
  const last = history[history.length - 1];
  const vertices = report?.vertices || [];
  const state = vertices.reduce((sum, vertex) => sum + (vertex["state-bytes"] || 0), 0);
  const now = job.now || report?.heartbeat;
  const ended = last ? last.started_ms + last.duration_ms : null;
  return h(
    "div",
    { class: "tiles compact", key: "strip" },
    tile(
      "Throughput",
      rate(flow["records-per-second"]),
      flow["batch-records"] == null ? null : `${count(flow["batch-records"])} in the last batch`,
    ),
    tile("Backlog", count(flow["backlog-records"]), pace(flow, over), flow.backpressured && !over ? "pressed" : null),
    tile(
      "Latency p99",
      duration(flow["latency-ms"]?.p99),
      flow["latency-ms"] ? `median ${duration(flow["latency-ms"].p50)}` : "no batch yet",
    ),
    tile(
      "Last checkpoint",
      last ? duration(last.duration_ms) : DASH,
      last ? `${bytes(last.bytes_full)}, ${over ? time(ended) : `${clock(Math.max(now - ended, 0))} ago`}` : "none yet",
    ),
    tile(
      "State",
      vertices.length ? bytes(state) : DASH,
      plural(vertices.filter((vertex) => vertex["state-bytes"] > 0).length, "chain"),
    ),
    tile(
      "Exceptions",
      count(report?.exceptions?.length ?? 0),
      report?.exceptions?.length ? "see its tab" : "none",
      report?.exceptions?.length ? "failed" : null,
    ),
  );
}

function pace(flow, over) {
  if (over) return "when it ended";
  if (flow.backpressured == null) return "no batch yet";
  return flow.backpressured ? "back-pressured" : "keeping up";
}

function tabs(jid, tab, { report }) {
  const badge = { exceptions: report?.exceptions?.length, savepoints: runningOperations(jid).length };
  return h(
    "nav",
    { class: "tabs", key: "tabs", "aria-label": "Views of the job" },
    TABS.map(([id, text]) =>
      h(
        "a",
        { key: id, href: link("jobs", jid, id), "aria-current": id === tab ? "page" : null },
        text,
        badge[id] ? h("span", { class: `badge ${id}` }, badge[id]) : null,
      ),
    ),
  );
}

function body(jid, tab, vertex, data, ui) {
  if (tab === "exceptions") return exceptionsTab(data.report, data.history);
  if (!data.report && ENDED.has(data.state))
    return card(
      "No report",
      empty(
        "The job ended before it could report.",
        "See the Exceptions tab, or the job's log.",
        `millpond logs ${jid}`,
      ),
    );
  if (!data.report)
    return card(
      "Starting",
      empty(
        "The job has not reported yet.",
        "Its driver is starting Spark. What it prints is in its log.",
        `millpond logs ${jid}`,
      ),
    );
  switch (tab) {
    case "graph":
      return graphTab(jid, data.report, vertex, ui.width);
    case "checkpoints":
      return checkpointsTab(data.report, ui.width);
    case "savepoints":
      return savepointsTab(jid, data, ui);
    case "state":
      return stateTab(jid, data.report, ui.width);
    case "skew":
      return skewTab(data.report, ui.width);
    case "flow":
      return flowTab(jid, data.report, ui.width);
    case "metrics":
      return metricsTab(data.report, ui);
    case "configuration":
      return configurationTab(data.report, ui);
    default:
      return card("Not found", empty(`A job has no tab “${tab}”.`));
  }
}
