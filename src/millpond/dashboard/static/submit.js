// Upload applications and run them.

import { tried } from "./actions.js";
import * as api from "./api.js";
import { ask, input } from "./dialogs.js";
import { percent, time } from "./format.js";
import { link } from "./router.js";
import { toast } from "./toasts.js";
import { h } from "./vdom.js";
import { card, cut, empty } from "./widgets.js";
import { words } from "./words.js";

let uploading = null; // {name, ratio}
let chosen = null; // id of the application whose form is open

export const submitPage = {
  section: "submit",
  title: () => "Submit",

  async load(_, signal) {
    try {
      const answer = await api.get("jars", signal);
      return { files: (answer.files || []).sort((left, right) => right.uploaded - left.uploaded), off: null };
    } catch (error) {
      if (error instanceof api.Refused && [403, 404].includes(error.status)) return { files: [], off: error.message };
      throw error;
    }
  },

  render(_, { files, off }, ui) {
    const disabled = off || (ui.features["web-submit"] === false ? "This dispatcher takes no uploads." : null);
    return [
      h("div", { class: "page-head", key: "head" }, h("h1", null, "Submit")),
      disabled
        ? card(
            "Uploads are off",
            empty(
              disabled,
              "Uploads are only on by default when the dispatcher listens on loopback. Submit from a terminal instead.",
              "millpond run -d app.py",
            ),
          )
        : [
            card("Upload an application", uploadArea(ui)),
            card(
              "Applications",
              files.length
                ? list(files, ui)
                : empty(
                    "No applications yet.",
                    "Upload a program, or run one from a terminal.",
                    "millpond run -d app.py",
                  ),
            ),
          ],
    ];
  },
};

function uploadArea(ui) {
  const take = (file) => file && send(file, ui);
  const drop = (event) => {
    event.preventDefault();
    event.currentTarget.classList.remove("over");
    take(event.dataTransfer.files[0]);
  };
  const over = (event) => {
    event.preventDefault();
    event.currentTarget.classList.add("over");
  };
  return h(
    "label",
    {
      class: "drop",
      ondrop: drop,
      ondragover: over,
      ondragleave: (event) => event.currentTarget.classList.remove("over"),
    },
    h("input", {
      type: "file",
      class: "unseen",
      accept: ".py,.zip,.whl",
      onchange: (event) => {
        take(event.target.files[0]);
        event.target.value = ""; // so that the same file can be chosen again
      },
    }),
    uploading
      ? [
          h("b", null, `Uploading ${uploading.name}`),
          h(
            "div",
            {
              class: "progress",
              role: "progressbar",
              "aria-valuenow": Math.round(100 * (uploading.ratio || 0)),
              "aria-valuemin": 0,
              "aria-valuemax": 100,
            },
            h("i", { style: { width: percent(uploading.ratio || 0).replace(" ", "") } }),
          ),
        ]
      : [
          h("b", null, "Drop a file here, or choose one"),
          h("span", { class: "quiet" }, "A program (.py), a folder with __main__.py packed as .zip, or a wheel (.whl)"),
        ],
  );
}

async function send(file, ui) {
  if (uploading) return;
  uploading = { name: file.name, ratio: 0 };
  ui.redraw();
  await tried(async () => {
    await api.upload("jars/upload", file, (ratio) => {
      uploading = { name: file.name, ratio };
      ui.redraw();
    });
    toast(`${file.name} is uploaded.`);
  });
  uploading = null;
  ui.refresh();
}

function list(files, ui) {
  return h(
    "ul",
    { class: "applications" },
    files.map((file) => application(file, ui)),
  );
}

function application(file, ui) {
  const open = chosen === file.id;
  const toggle = () => {
    chosen = open ? null : file.id;
    ui.redraw();
  };
  return h(
    "li",
    { key: file.id, class: open ? "open" : null },
    h(
      "div",
      { class: "application" },
      h("div", { class: "application-name" }, cut(file.name), h("small", { class: "mono cut" }, file.id)),
      h("span", { class: "quiet" }, `uploaded ${time(file.uploaded)}`),
      h(
        "button",
        {
          type: "button",
          class: `button small${open ? "" : " primary"}`,
          onclick: toggle,
          "aria-expanded": String(open),
        },
        open ? "Close" : "Run…",
      ),
      h("button", { type: "button", class: "button small danger-outline", onclick: () => remove(file, ui) }, "Delete"),
    ),
    open ? runForm(file, ui) : null,
  );
}

function runForm(file, ui) {
  const submit = (event) => {
    event.preventDefault();
    run(file, event.target.elements, ui);
  };
  return h(
    "form",
    { class: "run-form", onsubmit: submit },
    input({ name: "arguments", label: "Arguments", placeholder: "--input views --rate 100" }),
    input({ name: "parallelism", label: "Parallelism", type: "number", min: 1, placeholder: "the program's" }),
    input({ name: "savepoint", label: "Start from savepoint", placeholder: "path; empty: from the beginning" }),
    input({
      name: "allow",
      label: "Allow non-restored state",
      type: "checkbox",
      hint: "State of the savepoint that no operator claims is left out.",
    }),
    h("div", null, h("button", { type: "submit", class: "button primary", "data-action": "run" }, "Run")),
  );
}

function run(file, fields, ui) {
  return tried(async () => {
    const body = { programArgsList: words(fields.arguments.value), allowNonRestoredState: fields.allow.checked };
    if (fields.parallelism.value) body.parallelism = Number(fields.parallelism.value);
    if (fields.savepoint.value.trim()) body.savepointPath = fields.savepoint.value.trim();
    const { jobid } = await api.post(api.path`jars/${file.id}/run`, body);
    chosen = null;
    toast("Submitted.");
    if (jobid) location.hash = link("jobs", jobid);
    else ui.refresh();
  });
}

async function remove(file, ui) {
  const sure = await ask({
    title: "Delete this application?",
    text: `“${file.name}” is deleted from the dispatcher. Jobs that run it have a copy of their own.`,
    confirm: "Delete",
    danger: true,
    dismiss: "Keep it",
  });
  if (!sure) return;
  await tried(() => api.remove(api.path`jars/${file.id}`));
  ui.refresh();
}
