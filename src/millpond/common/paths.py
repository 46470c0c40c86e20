"""Folders that users name: local or shared paths, or file:// URLs."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlparse

from millpond.errors import ProgramError


def local_folder(text: str | Path, what: str) -> Path:
    """The absolute path; raises if it is a URL of something else."""
    url = urlparse(str(text))
    if url.scheme not in ("", "file"):
        raise ProgramError(
            f"{what} is '{text}', but only folders on local or shared (NFS) file systems can be used yet. "
            "Use a path or file:// URL that the driver and all workers see."
        )
    path = unquote(url.path) if url.scheme else str(text)
    return Path(path).expanduser().absolute()
