"""Folders named by users: local or shared paths, or file:// URLs."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlparse

from millpond.errors import ProgramError


def local_folder(text: str | Path, what: str) -> Path:
    """Return the absolute path of a folder; raise ProgramError if `text` is a URL of another kind.

    `what` says what the folder is for, in the error.
    """
    url = urlparse(str(text))
    if url.scheme not in ("", "file"):
        raise ProgramError(
            f"{what} is '{text}', but only folders on local or shared (NFS) file systems are supported. "
            "Use a path or file:// URL that the driver and all workers can reach."
        )
    path = unquote(url.path) if url.scheme else str(text)
    return Path(path).expanduser().absolute()
