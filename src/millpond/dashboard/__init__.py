"""The web dashboard (O7): static files for the dispatcher, `index.html` at `/`, the rest below `/static/`.

The pages are ES modules without a build step and take nothing from elsewhere, so they work offline and
under `CONTENT_SECURITY_POLICY`. All they know comes from the REST service of the dispatcher.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["CONTENT_SECURITY_POLICY", "static_folder"]

#: To be sent with `index.html`: nothing inline, nothing from another host, in nobody's frame.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


def static_folder() -> Path:
    """The folder with `index.html` and everything that it refers to as `static/NAME`."""
    return Path(__file__).parent / "static"
