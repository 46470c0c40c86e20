"""An OpenAPI description for people, without anything from elsewhere."""

from __future__ import annotations

import html
from typing import Any

_STYLE = (
    "body{font:16px system-ui;margin:3em auto;max-width:70em;padding:0 1em;color-scheme:light dark}"
    "td{padding:.4em 1em .4em 0;vertical-align:top;border-top:1px solid #8884}"
    "td:nth-child(-n+2){font-family:ui-monospace,monospace;font-size:.9em}"
)


def page(description: dict[str, Any]) -> str:
    """A table of paths."""
    rows = []
    for path, methods in description["paths"].items():
        for method, own in methods.items():
            parameters = ", ".join(
                f"{p['name']}: {p.get('description') or p['schema'].get('type', '')}"
                for p in own.get("parameters", ())
            )
            body = "a JSON body" if "requestBody" in own else ""
            text = own.get("description") or own.get("summary", "")
            cells = (method.upper(), path, text, parameters or body)
            rows.append("".join(f"<td>{html.escape(cell)}</td>" for cell in cells))
    title = html.escape(description["info"]["title"])
    about = html.escape(description["info"].get("description", ""))
    table = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"
        f"<h1>{title}</h1><p>{about}</p><table>{table}</table>"
        "<p><a href=/openapi.json>openapi.json</a></p></html>"
    )
