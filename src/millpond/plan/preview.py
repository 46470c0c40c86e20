"""The plan of a program that is not to run: `execute` hands it over here and leaves the program."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn


class PlanTaken(BaseException):
    """Leaves a program at its first `execute`. No error, so that programs do not catch it by chance."""


class Preview:
    """Collects the plan of the first job."""

    def __init__(self) -> None:
        self.plan: dict[str, Any] | None = None
        self.drawing = ""
        self.notes: list[str] = []

    def take(self, plan: dict[str, Any], drawing: str) -> NoReturn:
        """Keep the plan of the first job, and leave the program."""
        if self.plan is None:
            self.plan, self.drawing = plan, drawing
        raise PlanTaken

    def parallelism(self, master: str | None) -> int:
        """What a job gets that names none: the cluster's cores. Spark is not started to ask for them."""
        local = re.fullmatch(r"local(?:\[([0-9]+|\*)(?:,[0-9]+)?\])?", master or "local[*]")
        if local is None:
            self.notes.append(
                "The parallelism will be the number of the cluster's cores, unknown here; the plan shows 1. "
                "Set it with -p."
            )
            return 1
        cores = local.group(1) or "1"
        return (os.cpu_count() or 1) if cores == "*" else int(cores)


_current: Preview | None = None


def current_preview() -> Preview | None:
    """Not None while a program is run for its plan only."""
    return _current


@contextmanager
def plan_only() -> Iterator[Preview]:
    """Programs that are run within it end at their first `execute`."""
    global _current
    _current = Preview()
    try:
        yield _current
    except PlanTaken:
        pass
    finally:
        _current = None
