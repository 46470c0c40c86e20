// What went wrong in a job, newest first.

import { DASH, time } from "./format.js";
import { h } from "./vdom.js";
import { card, copyButton, empty } from "./widgets.js";

/** `history`: /jobs/:jid/exceptions, which also knows drivers that died without a word. */
export function exceptionsTab(report, history) {
  const entries = history?.exceptionHistory?.entries;
  const found = entries?.length ? entries : [...(report?.exceptions || [])];
  const newestFirst = [...found].sort((left, right) => right.timestamp - left.timestamp);
  if (!newestFirst.length)
    return card(
      "Exceptions",
      empty("No exceptions.", "If the job fails, the cause appears here, and stays after a restart."),
    );
  return card(
    "Exceptions",
    h("div", { class: "exceptions" }, newestFirst.map(entry)),
    history?.exceptionHistory?.truncated ? "only the newest are kept" : null,
  );
}

function entry(one, index) {
  const name = String(one.exceptionName || "Exception");
  const stack = String(one.stacktrace || "");
  return h(
    "details",
    { class: "exception", key: `${one.timestamp}-${name}-${stack.length}`, ...(index === 0 ? { open: true } : {}) },
    h(
      "summary",
      null,
      h("span", { class: "exception-time" }, time(one.timestamp)),
      h("span", { class: "exception-name" }, name),
      h("span", { class: "exception-task", title: one.taskName || "" }, one.taskName || ""),
      h("span", { class: "exception-message" }, message(stack, name)),
    ),
    h(
      "div",
      { class: "stack-frame" },
      copyButton(stack, "Copy stack trace"),
      h("pre", { class: "stack", tabindex: "0" }, stack || DASH),
    ),
  );
}

/** The line that says what happened: Python writes it last. */
function message(stack, name) {
  const lines = stack
    .trim()
    .split("\n")
    .filter((line) => line.trim());
  const short = name.split(".").pop();
  return lines.findLast((line) => line.includes(short)) || lines[lines.length - 1] || "";
}
