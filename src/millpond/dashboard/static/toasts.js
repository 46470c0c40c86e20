// Short messages about what a button did.

const SHOWN_MS = 5000;

/** `tone`: "good" or "bad". */
export function toast(text, tone = "good") {
  const place = document.getElementById("toasts");
  const message = document.createElement("div");
  message.className = `toast ${tone}`;
  message.textContent = text;
  place.append(message);
  setTimeout(() => message.remove(), tone === "bad" ? 2 * SHOWN_MS : SHOWN_MS);
}
