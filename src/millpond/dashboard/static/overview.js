// The first page: the cluster in a few numbers, jobs that run, jobs that have ended.

import * as api from "./api.js";
import { DASH, bytes, clock, count, duration, rate, shortId, time } from "./format.js";
import { sparkline } from "./charts.js";
import { link } from "./router.js";
import { remember, remembered } from "./series.js";
import { h } from "./vdom.js";
import { card, cut, empty, filterBox, meter, pill, table, tile } from "./widgets.js";

export const ENDED = new Set(["FINISHED", "CANCELED", "FAILED"]);
const REPORTS_AT_ONCE = 24; // of jobs that run: each is a request a second
const ROWS = 50;

const endedReports = new Map(); // they do not change any more
let filter = "";
let allRows = false;

export const overviewPage = {
  section: "jobs",
  title: () => "Jobs",

  async load(_, signal) {
    const [cluster, managers, overview] = await Promise.all([
      api.get("overview", signal),
      api.get("taskmanagers", signal),
      api.get("jobs/overview", signal),
    ]);
    const jobs = (overview.jobs || []).sort((left, right) => right["start-time"] - left["start-time"]);
    const running = jobs.filter((job) => !ENDED.has(job.state));
    const ended = jobs.filter((job) => ENDED.has(job.state));
    const reports = new Map(endedReports);
    const ask = [
      ...running.slice(0, REPORTS_AT_ONCE),
      ...ended.filter((job) => !endedReports.has(job.jid)).slice(0, 4),
    ];
    await Promise.all(ask.map(async (job) => reports.set(job.jid, await reportOf(job, signal))));
    return { cluster, managers: managers.taskmanagers || [], running, ended, reports };
  },

  render(_, { cluster, managers, running, ended, reports }, ui) {
    const total = running.reduce((sum, job) => sum + (reports.get(job.jid)?.flow?.["records-per-second"] || 0), 0);
    const shown = (jobs) =>
      jobs.filter((job) => `${job.name} ${job.jid} ${job.state}`.toLowerCase().includes(filter.toLowerCase()));
    const change = (text) => {
      filter = text;
      ui.redraw();
    };
    const many = running.length + ended.length > 8;
    return [
      h(
        "div",
        { class: "page-head", key: "head" },
        h("h1", null, "Jobs"),
        many ? filterBox("Filter by name, id or state", filter, change) : null,
      ),
      tiles(cluster, managers, running, total),
      card("Running", running.length ? runningTable(shown(running), reports) : nothingRuns(ended)),
      ended.length ? card("Completed", endedTable(shown(ended), reports, ui)) : null,
    ];
  },
};

async function reportOf(job, signal) {
  try {
    const report = await api.get(api.path`jobs/${job.jid}/report`, signal);
    if (ENDED.has(job.state)) endedReports.set(job.jid, report);
    remember(`${job.jid}/throughput`, report.heartbeat, report.flow?.["records-per-second"]);
    return report;
  } catch (error) {
    if (!(error instanceof api.Refused)) throw error;
    if (ENDED.has(job.state)) endedReports.set(job.jid, null);
    return null; // not written yet, or cannot be read: the list is shown all the same
  }
}

function tiles(cluster, managers, running, throughput) {
  const slots = cluster["slots-total"] || 0;
  const used = slots - (cluster["slots-available"] || 0);
  return h(
    "div",
    { class: "tiles", key: "tiles" },
    tile(
      "Slots in use",
      [`${used}`, h("small", null, ` of ${slots}`)],
      meter(slots ? used / slots : 0, `${used} of ${slots} slots in use`),
    ),
    tile(
      "Slots available",
      count(cluster["slots-available"]),
      `${managers.length} task manager${managers.length === 1 ? "" : "s"}`,
    ),
    tile("Throughput", rate(throughput), "all running jobs"),
    tile("Running", count(cluster["jobs-running"] ?? running.length), "jobs", "running"),
    tile("Finished", count(cluster["jobs-finished"]), "jobs", "finished"),
    tile("Canceled", count(cluster["jobs-cancelled"]), "jobs", "canceled"),
    tile("Failed", count(cluster["jobs-failed"]), "jobs", cluster["jobs-failed"] ? "failed" : null),
  );
}

function nothingRuns(ended) {
  return ended.length
    ? empty("No job is running.", "Start one from a terminal, or on the Submit page.", "millpond run app.py")
    : empty("No jobs yet.", "Start the first one from a terminal, or on the Submit page.", "millpond run app.py");
}

function nameOf(job) {
  return h(
    "a",
    { class: "job-link", href: link("jobs", job.jid) },
    cut(job.name || "(no name)"),
    h("small", { class: "mono" }, shortId(job.jid)),
  );
}

function tasksOf(job) {
  const { total = 0, running = 0, finished = 0, failed = 0 } = job.tasks || {};
  const text = ENDED.has(job.state) ? `${finished} of ${total} finished` : `${running} of ${total} running`;
  return h(
    "span",
    { title: failed ? `${text}, ${failed} failed` : text },
    ENDED.has(job.state) ? `${finished}/${total}` : `${running}/${total}`,
  );
}

function lastCheckpoint(report, now) {
  const history = report?.checkpoints?.history || [];
  const last = history[history.length - 1];
  if (!last) return DASH;
  const ended = last.started_ms + last.duration_ms;
  const when = now ? `${clock(Math.max(now - ended, 0))} ago` : time(ended);
  return h(
    "span",
    { class: "two-lines" },
    `${bytes(last.bytes_full)} in ${duration(last.duration_ms)}`,
    h("small", null, when),
  );
}

function runningTable(jobs, reports) {
  const columns = [
    { label: "Name" },
    { label: "State", width: "136px" },
    { label: "Started", width: "150px" },
    { label: "Duration", class: "number", width: "104px" },
    { label: "Tasks", class: "number", width: "76px", title: "running of all" },
    { label: "Throughput", class: "number", width: "212px" },
    { label: "Last checkpoint", width: "160px" },
  ];
  const rows = jobs.map((job) => {
    const report = reports.get(job.jid);
    return {
      key: job.jid,
      cells: [
        nameOf(job),
        pill(job.state),
        time(job["start-time"]),
        clock(job.duration),
        tasksOf(job),
        h(
          "span",
          { class: "with-spark" },
          sparkline(remembered(`${job.jid}/throughput`)),
          h("span", null, rate(report?.flow?.["records-per-second"])),
        ),
        lastCheckpoint(report, report?.heartbeat),
      ],
    };
  });
  return rows.length
    ? table(columns, rows, "Running jobs")
    : h("p", { class: "quiet" }, "No running job matches the filter.");
}

function endedTable(jobs, reports, ui) {
  const columns = [
    { label: "Name" },
    { label: "State", width: "136px" },
    { label: "Started", width: "150px" },
    { label: "Ended", width: "150px" },
    { label: "Duration", class: "number", width: "104px" },
    { label: "Tasks", class: "number", width: "76px", title: "finished of all" },
    { label: "Last checkpoint", width: "160px" },
  ];
  const shown = allRows ? jobs : jobs.slice(0, ROWS);
  const rows = shown.map((job) => ({
    key: job.jid,
    cells: [
      nameOf(job),
      pill(job.state),
      time(job["start-time"]),
      time(job["end-time"]),
      clock(job.duration),
      tasksOf(job),
      lastCheckpoint(reports.get(job.jid)),
    ],
  }));
  if (!rows.length) return h("p", { class: "quiet" }, "No completed job matches the filter.");
  const showAll = () => {
    allRows = true;
    ui.redraw();
  };
  return [
    table(columns, rows, "Completed jobs"),
    shown.length < jobs.length
      ? h("button", { type: "button", class: "button small", onclick: showAll }, `Show all ${jobs.length}`)
      : null,
  ];
}
