// Puts together the page that the address names, its polling, the banner and the token form.

import * as api from "./api.js";
import { whenChanged } from "./charts.js";
import { askToken } from "./dialogs.js";
import { timeOfDay } from "./format.js";
import { jobPage } from "./job.js";
import { overviewPage } from "./overview.js";
import { poll } from "./poll.js";
import { referencePage } from "./reference.js";
import { currentPath, find } from "./router.js";
import { submitPage } from "./submit.js";
import { taskManagersPage } from "./taskmanagers.js";
import { toast } from "./toasts.js";
import { h, patch } from "./vdom.js";
import { empty, skeleton } from "./widgets.js";

/**
 * A page has `section`, `title(parameters, data)`, `load(parameters, signal)` (its data, asked for every second) and
 * `render(parameters, data, ui)`. `same(before, now)`: whether data stays true when parameters change.
 */
const ROUTES = [
  ["/", overviewPage],
  ["/jobs", overviewPage],
  ["/jobs/:jid/:tab?/:vertex?", jobPage],
  ["/taskmanagers", taskManagersPage],
  ["/submit", submitPage],
  ["/api", referencePage],
];

const view = document.getElementById("view");
const banner = document.getElementById("banner");

let shown = null; // {page, parameters, data, missing}
let polling = null;
let lastAnswer = null;
let drawing = false;

/** What pages can ask of the frame around them. */
const ui = {
  features: {},
  width: 0,
  redraw() {
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => {
      drawing = false;
      draw();
    });
  },
  refresh() {
    polling?.now();
  },
};

function draw() {
  ui.width = view.clientWidth - 2 * parseFloat(getComputedStyle(view).paddingLeft);
  if (!shown) {
    patch(
      view,
      h(
        "div",
        { key: "nowhere" },
        empty("There is no such page.", "Perhaps the address was cut off."),
        h("p", { class: "center" }, h("a", { href: "#/" }, "All jobs")),
      ),
    );
    return;
  }
  const { page, parameters, data, missing } = shown;
  document.title = `${data ? page.title(parameters, data) : page.title(parameters)} · Millpond`;
  let content = skeleton();
  if (missing)
    content = h(
      "div",
      null,
      empty(missing, "It may have been removed from the dispatcher's storage."),
      h("p", { class: "center" }, h("a", { href: "#/" }, "All jobs")),
    );
  else if (data) content = page.render(parameters, data, ui);
  patch(
    view,
    h("div", { key: page.section + (parameters.jid || "") + (data ? "" : "-bones"), class: "page" }, content),
  );
}

function navigate() {
  const found = find(ROUTES);
  const staying = found && shown && shown.page === found.page && shown.page.same?.(shown.parameters, found.parameters);
  shown = found && { ...found, data: staying ? shown.data : null, missing: null };
  polling?.stop();
  polling = found && poll((signal) => found.page.load(found.parameters, signal), answered, failed);
  for (const link of document.querySelectorAll("#sections a[data-section]")) {
    if (link.dataset.section === found?.page.section) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!staying) window.scrollTo(0, 0);
  draw();
}

function answered(data) {
  lastAnswer = Date.now();
  banner.hidden = true;
  document.body.classList.remove("away");
  shown.data = data;
  shown.missing = null;
  ui.redraw();
  if (!ui.known) learn();
}

function failed(error) {
  if (error instanceof api.Refused && error.status === 404 && !shown.data) {
    shown.missing = error.message;
    draw();
    return;
  }
  const since = lastAnswer ? ` Numbers are from ${timeOfDay(lastAnswer)}.` : "";
  const trying =
    error instanceof api.Refused && error.status === 401 ? "Reload the page to enter it." : "Trying again…";
  const text = error.message || String(error);
  banner.textContent = `${text}${/[.!?…]$/.test(text) ? "" : "."}${since} ${trying}`;
  banner.hidden = false;
  document.body.classList.add("away");
  if (!(error instanceof api.Unreachable || error instanceof api.Refused)) console.error(error);
}

/** What the dispatcher allows, and its version: once. */
async function learn() {
  ui.known = true;
  try {
    const [config, overview] = await Promise.all([api.get("config"), api.get("overview")]);
    ui.features = config.features || {};
    const version = overview["millpond-version"] || overview["flink-version"];
    document.getElementById("version").textContent = version ? `v${version}` : "";
    ui.redraw();
  } catch {
    ui.known = false; // with the next answer
  }
}

/** A link sends no token: with one, the metrics are fetched and shown from memory. */
async function openMetrics(event) {
  if (!api.token()) return;
  event.preventDefault();
  try {
    const text = await api.text("metrics");
    window.open(URL.createObjectURL(new Blob([text], { type: "text/plain" })), "_blank", "noopener");
  } catch (error) {
    toast(error.message, "bad");
  }
}

api.takeToken();
api.whenUnauthorized(askToken);
whenChanged(ui.redraw);
document.getElementById("prometheus").addEventListener("click", openMetrics);
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the part behind # is the page
  view.focus();
});
window.addEventListener("hashchange", () => {
  if (api.takeToken())
    location.reload(); // a form that asks for it may be open
  else navigate();
});
new ResizeObserver(() => ui.redraw()).observe(view);
if (currentPath() === "/" && location.hash && location.hash !== "#/") history.replaceState(null, "", "#/");
navigate();
