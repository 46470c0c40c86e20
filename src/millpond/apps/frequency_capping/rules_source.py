"""Rules from a file, as a stream: all of them when the job starts, and again whenever the file changes."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

from millpond.apps.frequency_capping.config import default_config, load_config
from millpond.apps.frequency_capping.rules import RuleError
from millpond.datastream.connectors.base import Source, SplitEnumerator, SplitWork
from millpond.datastream.functions import RuntimeContext

_LOOK_EVERY_MS = 2000
_log = logging.getLogger(__name__)


class RulesSource(Source):
    """`path`: of the file; None for the rules that count without one."""

    bounded = False
    endless = True

    def __init__(self, path: str | None) -> None:
        self._path = path

    def create_enumerator(self, parallelism: int, context: RuntimeContext) -> SplitEnumerator:
        return _RulesEnumerator(self._path)

    def read(self, arguments: str) -> Iterator[tuple[Any, int | None]]:
        yield {"rules": json.loads(arguments)}, None


class _RulesEnumerator(SplitEnumerator):
    """The position is what was handed out last."""

    def __init__(self, path: str | None) -> None:
        super().__init__()
        self._path = path
        self._current: str | None = None
        self._refused: str | None = None

    def split_count(self) -> int:
        return 1

    def poll(self, max_records: int) -> list[SplitWork]:
        try:
            config = default_config() if self._path is None else load_config(self._path)
        except RuleError as problem:
            if self._current is None:
                raise
            if str(problem) != self._refused:  # once, not every two seconds
                _log.warning("%s The rules stay as they were.", problem)
            self._refused = str(problem)
            return []
        self._refused = None
        text = json.dumps(config.rules, sort_keys=True)
        if text == self._current:
            return []
        self._current = text
        return [SplitWork(0, text)]

    def position(self) -> str | None:
        return self._current

    def restore(self, position: str | None) -> None:
        self._current = position

    def ended(self) -> list[bool]:
        return [False]

    def caught_up(self) -> bool:
        return True

    def next_poll_in_ms(self) -> int | None:
        return None if self._path is None else _LOOK_EVERY_MS
