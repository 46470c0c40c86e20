"""Erases what is left of a user outside of state and Redis: the dead letters that are about them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from millpond.apps.frequency_capping.rules import text_of


def erase_letters(folder: str | Path, user: str, user_field: str) -> int:
    """Remove a user's lines from all files of dead letters, and return how many there were.

    `user_field` is the name of the field with the user in records. Each file is written to a temporary file
    and renamed. Files that a job is still writing have other names, and are left alone."""
    name, wanted = re.escape(user_field), re.escape(user)
    in_broken = re.compile(rf'"{name}"\s*:\s*(?:"{wanted}"|{wanted}(?![\w.]))')
    erased = 0
    for path in sorted(Path(folder).glob("[!._]*")) if Path(folder).is_dir() else ():
        lines = path.read_bytes().splitlines(keepends=True)
        kept = [line for line in lines if not _is_about(line, user, user_field, in_broken)]
        if len(kept) == len(lines):
            continue
        erased += len(lines) - len(kept)
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.writelines(kept)
            file.flush()
            os.fsync(file.fileno())
        if kept:
            os.replace(aside, path)
        else:
            path.unlink()
            aside.unlink()
    return erased


def _is_about(line: bytes, user: str, user_field: str, in_broken: re.Pattern[str]) -> bool:
    letter = json.loads(line)
    if letter.get("user") == user:
        return True
    record = letter.get("record")
    if not isinstance(record, str):
        return False
    try:
        fields = json.loads(record)
    except (ValueError, RecursionError):
        return in_broken.search(record) is not None
    return isinstance(fields, dict) and text_of(fields.get(user_field)) == user
