"""The file with the token that a dispatcher's clients must have."""

from __future__ import annotations

import contextlib
import os
import secrets
import uuid
from pathlib import Path

from millpond.errors import SetupError

NAME = (
    "token"  # in a cluster's folder, or in the storage of a dispatcher that was started by itself
)
MIN_LENGTH = 16


def make_token_file(path: Path) -> Path:
    """Write a new token, unless there is one: clients may have it. Only this user can read it, from the first
    moment on, and it is complete or not there: several dispatchers that start at once agree on one."""
    try:
        if not path.exists():
            _write(path, secrets.token_urlsafe(32))
        status = path.stat()
    except OSError as problem:
        raise SetupError(
            f"No token can be written to {path}: {problem}. --token-file names a file with one."
        ) from None
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise SetupError(
            f"The token file {path} belongs to another user or is open to others. Remove it, and a new one "
            "is made; or name another one: --token-file."
        )
    return path


def read_token(path: Path) -> str:
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as problem:
        raise SetupError(f"The token file {path} cannot be read: {problem}.") from None
    if len(token) < MIN_LENGTH:
        raise SetupError(f"The token in {path} is too short: {MIN_LENGTH} characters or more.")
    return token


def _write(path: Path, token: str) -> None:
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token + "\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        with contextlib.suppress(FileExistsError):  # another one was faster: its token counts
            os.link(aside, path)
    finally:
        os.remove(aside)
