// Savepoints of a job: take one, watch it, and find those that were taken.

import { operationsOf, takeSavepoint } from "./actions.js";
import { clock, duration, time } from "./format.js";
import { ENDED } from "./overview.js";
import { h } from "./vdom.js";
import { card, copyButton, cut, empty, pill, table } from "./widgets.js";

export function savepointsTab(jid, { report, state }, ui) {
  const taken = [...(report.savepoints || [])].reverse();
  return [
    ENDED.has(state) || ui.features["web-cancel"] === false ? null : card("Take a savepoint", form(jid, ui)),
    progress(jid),
    card(
      "Savepoints",
      taken.length
        ? list(taken)
        : empty(
            "No savepoint yet.",
            "A savepoint is a complete copy of the job's state: to upgrade the program, to change its parallelism, or to keep.",
          ),
    ),
  ];
}

function form(jid, ui) {
  const submit = (event) => {
    event.preventDefault();
    takeSavepoint(jid, event.target.elements.directory.value.trim(), ui);
  };
  return h(
    "form",
    { class: "inline-form", onsubmit: submit },
    h(
      "label",
      { class: "field" },
      h("span", null, "Folder"),
      h("input", {
        name: "directory",
        type: "text",
        placeholder: "as configured for the job",
        autocomplete: "off",
        spellcheck: "false",
      }),
    ),
    h("button", { type: "submit", class: "button primary", "data-action": "take-savepoint" }, "Take savepoint"),
  );
}

function progress(jid) {
  const operations = [...operationsOf(jid)].reverse();
  if (!operations.length) return null;
  return card(
    "Asked for from this page",
    h(
      "ul",
      { class: "operations" },
      operations.map((operation) => {
        const busy = operation.status === "IN_PROGRESS";
        return h(
          "li",
          { key: operation.id },
          h(
            "div",
            { class: "operation-line" },
            pill(operation.status),
            h("span", null, operation.kind === "stop" ? "stop with savepoint" : "savepoint"),
            h("span", { class: "quiet" }, clock((operation.ended || Date.now()) - operation.began)),
          ),
          busy
            ? h(
                "div",
                { class: "progress endless", role: "progressbar", "aria-label": "The savepoint is being taken" },
                h("i", null),
              )
            : null,
          operation.location
            ? h("div", { class: "path" }, cut(operation.location, "mono"), copyButton(operation.location, "Copy path"))
            : null,
          operation.failure ? h("pre", { class: "stack" }, operation.failure) : null,
        );
      }),
    ),
  );
}

function list(taken) {
  const columns = [
    { label: "Path" },
    { label: "Taken", width: "180px" },
    { label: "Duration", class: "number", width: "120px" },
  ];
  const rows = taken.map((one) => ({
    key: one.path,
    cells: [
      h("span", { class: "path" }, cut(one.path, "mono"), copyButton(one.path, "Copy path")),
      time(one.time),
      duration(one["duration-ms"]),
    ],
  }));
  return [
    table(columns, rows, "Savepoints, newest first"),
    h(
      "p",
      { class: "quiet" },
      "To go on from one: ",
      h("code", null, "millpond run -s PATH app.py"),
      ", or name it on the Submit page.",
    ),
  ];
}
