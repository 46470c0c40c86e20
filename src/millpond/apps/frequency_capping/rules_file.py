"""Watches the file of rules. A file that is being written is left alone: its content counts only when two
looks in a row have found the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from millpond.apps.frequency_capping.config import CappingConfig, read_config
from millpond.apps.frequency_capping.rules import RuleError

_MOST_LOOKS = 30  # after that, a file that keeps changing is given up


@dataclass(frozen=True)
class Look:
    """What a look at the file has found: its bytes, or the reason why it cannot be read."""

    content: bytes = b""
    problem: str | None = None

    def config(self, where: str) -> CappingConfig:
        """Return what the file says. `where` names it in errors. Raise RuleError, naming file, line and
        reason, if it cannot be read or used."""
        if self.problem is not None:
            raise RuleError(self.problem)
        return read_config(self.content, where)


def look_at(path: str) -> Look:
    """Read the file now."""
    try:
        return Look(Path(path).read_bytes())
    except OSError as problem:
        return Look(problem=f"The rules {path} cannot be read: {problem}.")


class RulesFile:
    """A file of rules that is looked at regularly. `first` is an earlier look, from when the job was built.
    Tests replace `clock_s` and `pause_s`."""

    def __init__(self, path: str, first: Look, look_every_ms: int) -> None:
        self._path = path
        self._newest = first
        self._given: Look | None = None
        self._look_every_s = look_every_ms / 1000
        self._looked_at_s: float | None = None
        self.clock_s: Callable[[], float] = time.monotonic
        self.pause_s: Callable[[float], None] = time.sleep

    def settled(self) -> Look | None:
        """Return what two looks in a row have found, but only once; None if there is nothing new. However
        often this is called, the file is read only when the interval is over."""
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
        """Wait until two looks in a row have found the same, and return it; None if the file never settles.
        For a job that starts: what has changed since it was built must count from its first batch on."""
        for _ in range(_MOST_LOOKS):
            if (found := self.settled()) is not None:
                return found
            self.pause_s(self._look_every_s)
        return None
