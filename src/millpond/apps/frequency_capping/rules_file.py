"""The file with rules, looked at again and again. A file that is being written is left alone: what it has
counts only when two looks in a row have found the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from millpond.apps.frequency_capping.config import CappingConfig, read_config
from millpond.apps.frequency_capping.rules import RuleError

_MOST_LOOKS = 30  # until a file that is always written must be given up


@dataclass(frozen=True)
class Look:
    """What the file had: its bytes, or why they cannot be read."""

    content: bytes = b""
    problem: str | None = None

    def config(self, where: str) -> CappingConfig:
        """Raises RuleError, naming file, line and reason."""
        if self.problem is not None:
            raise RuleError(self.problem)
        return read_config(self.content, where)


def look_at(path: str) -> Look:
    try:
        return Look(Path(path).read_bytes())
    except OSError as problem:
        return Look(problem=f"The rules {path} cannot be read: {problem}.")


class RulesFile:
    """`first`: a look from before, when the job was described. Tests replace `clock_s` and `pause_s`."""

    def __init__(self, path: str, first: Look, look_every_ms: int) -> None:
        self._path = path
        self._newest = first
        self._given: Look | None = None
        self._look_every_s = look_every_ms / 1000
        self._looked_at_s: float | None = None
        self.clock_s: Callable[[], float] = time.monotonic
        self.pause_s: Callable[[float], None] = time.sleep

    def settled(self) -> Look | None:
        """What two looks in a row have found, once; None if there is nothing new. It is only looked at when
        the interval is over, however often this is called."""
        now_s = self.clock_s()
        if self._looked_at_s is not None and now_s - self._looked_at_s < self._look_every_s:
            return None
        self._looked_at_s = now_s
        before, self._newest = self._newest, look_at(self._path)
        if self._newest != before or self._newest == self._given:
            return None
        self._given = self._newest
        return self._given

    def await_settled(self) -> Look | None:
        """The same for a job that starts: what has changed meanwhile is to count from its first batch on.
        None if the file never comes to rest."""
        for _ in range(_MOST_LOOKS):
            if (found := self.settled()) is not None:
                return found
            self.pause_s(self._look_every_s)
        return None
