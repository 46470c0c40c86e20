"""When things have happened in the processes of a job: a file to which all of them append lines of JSON."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


def mark(path: str, what: str, **details: Any) -> None:
    """Write down that something has just happened in this process."""
    line = json.dumps({"what": what, "at_s": time.time(), "pid": os.getpid(), **details})
    with open(path, "a", encoding="ascii") as file:
        file.write(line + "\n")


class Marks:
    """Reads the file of marks as it grows."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._read = 0
        self._marks: list[dict[str, Any]] = []
        Path(path).touch()

    def all(self, what: str, since_s: float = 0.0) -> list[dict[str, Any]]:
        """Return all marks of a kind that were written since then, in their order."""
        with open(self.path, "rb") as file:
            file.seek(self._read)
            complete = file.read().rpartition(b"\n")[0]
        if complete:
            self._read += len(complete) + 1
            self._marks += map(json.loads, complete.splitlines())
        return [m for m in self._marks if m["what"] == what and m["at_s"] >= since_s]
