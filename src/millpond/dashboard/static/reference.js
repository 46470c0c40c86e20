// The REST service described from its own OpenAPI document: works offline, unlike pages that load a viewer from elsewhere.

import * as api from "./api.js";
import { h } from "./vdom.js";
import { card, empty, filterBox } from "./widgets.js";

const METHODS = ["get", "post", "put", "patch", "delete"];

let filter = "";
let known = null; // it does not change while the dispatcher runs: asked for once

export const referencePage = {
  section: "api",
  title: () => "API",

  async load(_, signal) {
    known ??= await api.get("openapi.json", signal);
    return known;
  },

  render(_, document, ui) {
    const operations = Object.entries(document.paths || {}).flatMap(([path, item]) =>
      METHODS.filter((method) => item[method]).map((method) => ({
        path,
        method,
        ...item[method],
        parameters: [...(item.parameters || []), ...(item[method].parameters || [])],
      })),
    );
    const shown = operations.filter((one) =>
      `${one.method} ${one.path} ${one.summary || ""}`.toLowerCase().includes(filter.toLowerCase()),
    );
    const change = (text) => {
      filter = text;
      ui.redraw();
    };
    return [
      h(
        "div",
        { class: "page-head", key: "head" },
        h("h1", null, document.info?.title || "REST API"),
        filterBox("Filter paths", filter, change),
      ),
      h(
        "p",
        { class: "quiet", key: "intro" },
        document.info?.description || "The paths and names of Flink's REST API.",
        " ",
        h("a", { href: "docs" }, "OpenAPI page"),
        " · ",
        h("a", { href: "openapi.json" }, "openapi.json"),
      ),
      card(
        "Paths",
        shown.length
          ? h(
              "ul",
              { class: "operations-list" },
              shown.map((one) => operation(one, document)),
            )
          : empty("No path matches the filter."),
      ),
    ];
  },
};

function operation(one, document) {
  const body = one.requestBody?.content?.["application/json"]?.schema;
  return h(
    "li",
    { key: `${one.method} ${one.path}` },
    h(
      "details",
      null,
      h(
        "summary",
        null,
        h("span", { class: `method ${one.method}` }, one.method.toUpperCase()),
        h("code", null, one.path),
        h("span", { class: "quiet" }, one.summary || ""),
      ),
      one.description ? h("p", { class: "wrap" }, one.description) : null,
      one.parameters.length
        ? h(
            "ul",
            { class: "parameters" },
            one.parameters.map((parameter) =>
              h(
                "li",
                null,
                h("code", null, parameter.name || ""),
                ` in ${parameter.in || "?"}`,
                parameter.required ? ", required" : "",
                parameter.description ? `: ${parameter.description}` : "",
              ),
            ),
          )
        : null,
      body
        ? [h("h3", null, "Body"), h("pre", { class: "stack" }, JSON.stringify(resolved(body, document), null, 2))]
        : null,
      h(
        "ul",
        { class: "parameters" },
        Object.entries(one.responses || {}).map(([status, answer]) =>
          h("li", null, h("code", null, status), ` ${answer.description || ""}`),
        ),
      ),
    ),
  );
}

function resolved(schema, document) {
  const name = schema.$ref?.split("/").pop();
  return name ? document.components?.schemas?.[name] || schema : schema;
}
