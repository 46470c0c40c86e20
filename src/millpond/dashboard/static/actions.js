// What the buttons of a job do, and the savepoints that are on their way because of them.

import * as api from "./api.js";
import { ask } from "./dialogs.js";
import { toast } from "./toasts.js";

const POLL_MS = 500;

/** {id, jid, kind: "savepoint" | "stop", began, status: "IN_PROGRESS" | "COMPLETED" | "FAILED", location, failure}, newest last. */
const operations = [];

export function operationsOf(jid) {
  return operations.filter((operation) => operation.jid === jid);
}

export function running(jid) {
  return operationsOf(jid).filter((operation) => operation.status === "IN_PROGRESS");
}

const DIRECTORY = {
  name: "directory",
  label: "Folder",
  placeholder: "as configured for the job",
  hint: "Empty: execution.checkpointing.savepoint-dir of the job.",
};

export async function askCancel(jid, name, ui) {
  const sure = await ask({
    title: "Cancel this job?",
    text: `“${name}” ends at once. What it did after its last checkpoint is not kept; to go on later from here, stop it with a savepoint instead.`,
    confirm: "Cancel job",
    danger: true,
    dismiss: "Keep running",
  });
  if (!sure) return;
  await tried(async () => {
    await api.patch(`${api.path`jobs/${jid}`}?mode=cancel`);
    toast("The job is being cancelled.");
  });
  ui.refresh();
}

export async function askSavepoint(jid, name, ui) {
  const answer = await ask({
    title: "Take a savepoint",
    text: `“${name}” goes on while its state is copied to a folder of its own.`,
    fields: [DIRECTORY],
    confirm: "Take savepoint",
    dismiss: "Close",
  });
  if (answer) await takeSavepoint(jid, answer.directory, ui);
}

export function takeSavepoint(jid, directory, ui) {
  return tried(async () => {
    const body = { "target-directory": directory || null, "cancel-job": false };
    const { "request-id": id } = await api.post(api.path`jobs/${jid}/savepoints`, body);
    follow({ id, jid, kind: "savepoint", directory }, ui);
  });
}

export async function askStop(jid, name, ui) {
  const answer = await ask({
    title: "Stop with a savepoint",
    text: `“${name}” takes a savepoint and then ends. It can be started from there later.`,
    fields: [
      DIRECTORY,
      {
        name: "drain",
        label: "Drain: let all timers fire first",
        type: "checkbox",
        hint: "Moves event time to its end and closes all windows. Use it only if the job will not be resumed.",
      },
    ],
    confirm: "Stop job",
    danger: true,
    dismiss: "Keep running",
  });
  if (!answer) return;
  await tried(async () => {
    const body = { targetDirectory: answer.directory || null, drain: answer.drain };
    const { "request-id": id } = await api.post(api.path`jobs/${jid}/stop`, body);
    follow({ id, jid, kind: "stop", directory: answer.directory }, ui);
  });
}

/** Asks for a savepoint's progress until it is done; goes on when the user looks at another page. */
function follow(started, ui) {
  const operation = { ...started, began: Date.now(), status: "IN_PROGRESS" };
  operations.push(operation);
  ui.redraw();
  const look = async () => {
    try {
      const answer = await api.get(api.path`jobs/${operation.jid}/savepoints/${operation.id}`);
      if (answer.status?.id === "COMPLETED") finish(operation, answer.operation || {});
    } catch (error) {
      if (error instanceof api.Refused) finish(operation, { "failure-cause": { class: error.message } });
    }
    ui.redraw();
    if (operation.status === "IN_PROGRESS") setTimeout(look, POLL_MS);
    else ui.refresh();
  };
  setTimeout(look, POLL_MS);
}

function finish(operation, { location, "failure-cause": cause }) {
  operation.ended = Date.now();
  if (cause) {
    operation.status = "FAILED";
    operation.failure = cause["stack-trace"] || cause.class || "unknown";
    toast(`The savepoint failed: ${firstLine(operation.failure)}`, "bad");
  } else {
    operation.status = "COMPLETED";
    operation.location = location;
    toast(location ? `Savepoint: ${location}` : "The savepoint is complete.");
  }
}

function firstLine(text) {
  return String(text).trim().split("\n")[0].slice(0, 200);
}

/** Runs what a button does; what the dispatcher has against it is told to the user. */
export async function tried(action) {
  try {
    return await action();
  } catch (error) {
    toast(error.message || String(error), "bad");
    return undefined;
  }
}
