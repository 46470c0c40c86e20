// Questions in front of the page. Each is a <dialog>: focus stays in it, Escape means no.

import { create, h } from "./vdom.js";

/**
 * Asks, with `fields` ({name, label, type?, value?, hint?, placeholder?}), and resolves to {name: value} or to null.
 * `confirm` is the text of the button that does it, `danger` makes it red.
 */
export function ask({ title, text, fields = [], confirm, danger = false, error = "", dismiss = "Keep as is" }) {
  return new Promise((resolve) => {
    let answer = null;
    const submit = (event) => {
      event.preventDefault();
      const form = event.target;
      answer = {};
      for (const field of fields) {
        const input = form.elements[field.name];
        answer[field.name] = field.type === "checkbox" ? input.checked : input.value.trim();
      }
      dialog.close();
    };
    const dialog = create(
      h(
        "dialog",
        { "aria-labelledby": "dialog-title", class: "question" },
        h(
          "form",
          { method: "dialog", onsubmit: submit },
          h("h2", { id: "dialog-title" }, title),
          text ? h("p", { class: "dialog-text" }, text) : null,
          error ? h("p", { class: "dialog-error", role: "alert" }, error) : null,
          fields.map(input),
          h(
            "div",
            { class: "dialog-buttons" },
            dismiss ? h("button", { type: "button", class: "button", onclick: () => dialog.close() }, dismiss) : null,
            h(
              "button",
              { type: "submit", class: `button ${danger ? "danger" : "primary"}`, "data-action": "confirm" },
              confirm,
            ),
          ),
        ),
      ),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(answer);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

export function input(field) {
  if (field.type === "checkbox") {
    return h(
      "label",
      { class: "check" },
      h("input", { type: "checkbox", name: field.name, ...(field.value ? { checked: true } : {}) }),
      h("span", null, field.label, field.hint ? h("small", null, field.hint) : null),
    );
  }
  return h(
    "label",
    { class: "field" },
    h("span", null, field.label),
    h("input", {
      name: field.name,
      type: field.type || "text",
      placeholder: field.placeholder,
      autocomplete: "off",
      spellcheck: "false",
      required: field.required,
      min: field.min,
      ...(field.value == null ? {} : { value: field.value }),
    }),
    field.hint ? h("small", null, field.hint) : null,
  );
}

/** The token, once for a browser tab. */
export async function askToken(wrong) {
  const answer = await ask({
    title: "Token",
    text:
      "This dispatcher requires a token. `millpond dashboard` prints a link that contains it. " +
      "The browser keeps the token until this tab is closed.",
    fields: [{ name: "token", label: "Token", type: "password", required: true }],
    confirm: "Sign in",
    dismiss: "Not now",
    error: wrong ? "The dispatcher did not accept this token." : "",
  });
  return answer?.token || null;
}
