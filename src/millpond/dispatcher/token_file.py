"""The file with the token that a dispatcher's clients must send."""

from __future__ import annotations

import contextlib
import os
import secrets
import uuid
from pathlib import Path

from millpond.errors import SetupError

# The file's name in a cluster's folder, or in the storage of a dispatcher that was started on its own.
NAME = "token"
MIN_LENGTH = 16


def make_token_file(path: Path) -> Path:
    """Write a new token to `path` unless there is one, which clients may already use; return `path`.

    Only this user can ever read the file, and it appears as a whole, so that several dispatchers that start
    at the same time agree on one token. Raise SetupError if the file cannot be written, belongs to another
    user, or is open to others."""
    try:
        if not path.exists():
            _write(path, secrets.token_urlsafe(32))
        status = path.stat()
    except OSError as problem:
        raise SetupError(
            f"Cannot write a token to {path}: {problem}. Use --token-file to name a file that has one."
        ) from None
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise SetupError(
            f"The token file {path} belongs to another user or is open to others. Remove it, so that a new "
            "one is created, or name another file with --token-file."
        )
    return path


def read_token(path: Path) -> str:
    """Return the token in a file. Raise SetupError if it cannot be read or has fewer than 16 characters."""
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as problem:
        raise SetupError(f"Cannot read the token file {path}: {problem}.") from None
    if len(token) < MIN_LENGTH:
        raise SetupError(
            f"The token in {path} is too short: it needs at least {MIN_LENGTH} characters."
        )
    return token


def _write(path: Path, token: str) -> None:
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token + "\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        # If another dispatcher was faster, its token counts.
        with contextlib.suppress(FileExistsError):
            os.link(aside, path)
    finally:
        os.remove(aside)
