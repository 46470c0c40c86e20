// Small pieces that several pages use.

import { DASH, percent } from "./format.js";
import { toast } from "./toasts.js";
import { h } from "./vdom.js";

/** The state of a job or task: a colour and its name. */
export function pill(state) {
  const text = String(state || "UNKNOWN");
  return h(
    "span",
    { class: `pill state-${text.toLowerCase().replace(/[^a-z]/g, "")}` },
    h("i", { "aria-hidden": "true" }),
    text,
  );
}

/** One number with its meaning. */
export function tile(label, value, note, tone) {
  return h(
    "div",
    { class: `tile${tone ? ` tone-${tone}` : ""}`, key: `tile-${label}` },
    h("div", { class: "tile-label" }, label),
    h("div", { class: "tile-value" }, value),
    h("div", { class: "tile-note" }, note ?? "\u00a0"),
  );
}

export function card(title, body, aside) {
  return h(
    "section",
    { class: "card", key: `card-${title}` },
    h("div", { class: "card-head" }, h("h2", null, title), aside ? h("div", { class: "card-aside" }, aside) : null),
    body,
  );
}

/** What a page shows when there is nothing to show: why, and what to do. */
export function empty(title, hint, command) {
  return h(
    "div",
    { class: "empty" },
    h("p", { class: "empty-title" }, title),
    hint ? h("p", { class: "empty-hint" }, hint) : null,
    command ? h("p", null, h("code", { class: "command" }, command), copyButton(command, "Copy command")) : null,
  );
}

const FLEXIBLE = 200; // the least room for a column without a width

/**
 * `columns`: {label, class?, width?, title?}; `rows`: {key, cells, class?}. On a narrow screen rows become blocks, in which
 * each cell tells its label.
 */
export function table(columns, rows, caption) {
  const least = columns.reduce(
    (sum, column) =>
      sum +
      (column.width?.endsWith("px") ? parseInt(column.width, 10) : column.class === "number" ? FLEXIBLE / 2 : FLEXIBLE),
    0,
  );
  return h(
    "div",
    { class: "table-frame", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      { style: { "--least": `${least}px` } },
      h("caption", { class: "unseen" }, caption),
      h(
        "colgroup",
        null,
        columns.map((column) => h("col", { style: column.width ? { width: column.width } : {} })),
      ),
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          columns.map((column) => h("th", { scope: "col", class: column.class, title: column.title }, column.label)),
        ),
      ),
      h(
        "tbody",
        null,
        rows.map((row) =>
          h(
            "tr",
            { key: `row-${row.key}`, class: row.class },
            row.cells.map((cell, index) =>
              h("td", { class: columns[index].class, "data-label": columns[index].label }, cell ?? DASH),
            ),
          ),
        ),
      ),
    ),
  );
}

/** Busy, back-pressured and idle share of the last seconds as one bar; the text carries it for those who do not see colours. */
export function timeBar(busy, backpressured, idle) {
  if (busy == null) {
    return h(
      "div",
      { class: "timebar unknown", title: "No batch has run yet" },
      h("span", { class: "unseen" }, "no batch yet"),
    );
  }
  const text = `busy ${percent(busy)}, back-pressured ${percent(backpressured)}, idle ${percent(idle)}`;
  const total = Math.max(busy + (backpressured || 0) + (idle || 0), 1e-9);
  const part = (name, share) =>
    h("i", { class: name, style: { width: `${((100 * (share || 0)) / total).toFixed(2)}%` } });
  return h(
    "div",
    { class: "timebar", role: "img", "aria-label": text, title: text },
    part("busy", busy),
    part("backpressured", backpressured),
    part("idle", idle),
  );
}

export function timeBarLegend() {
  const entry = (name, text) => h("span", null, h("i", { class: name, "aria-hidden": "true" }), text);
  return h(
    "div",
    { class: "legend" },
    entry("busy", "busy"),
    entry("backpressured", "back-pressured"),
    entry("idle", "idle"),
  );
}

/** A share of a whole, as a thin bar. */
export function meter(ratio, label) {
  const width = `${(100 * Math.min(Math.max(ratio || 0, 0), 1)).toFixed(2)}%`;
  return h("div", { class: "meter", role: "img", "aria-label": label, title: label }, h("i", { style: { width } }));
}

export function copyButton(text, label = "Copy") {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      toast("Copied");
    } catch {
      toast("The browser does not allow copying here.", "bad");
    }
  };
  return h("button", { type: "button", class: "copy", "aria-label": label, title: label, onclick: copy }, "Copy");
}

/** Text that is cut where the column ends; the whole is in its title. */
export function cut(text, extraClass) {
  return h("span", { class: `cut ${extraClass || ""}`, title: text }, text);
}

/** A box to filter a list with. */
export function filterBox(label, value, changed) {
  return h("input", {
    type: "search",
    class: "filter",
    placeholder: label,
    "aria-label": label,
    value,
    oninput: (event) => changed(event.target.value),
  });
}

/** Grey bars where the first answer will be: same size, so that nothing jumps. */
export function skeleton() {
  const bar = (size) => h("div", { class: `bone ${size}` });
  return h(
    "div",
    { class: "skeleton", "aria-label": "Loading", role: "status" },
    bar("title"),
    bar("tiles"),
    bar("block"),
  );
}
