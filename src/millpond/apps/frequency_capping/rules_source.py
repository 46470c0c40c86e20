"""Rules from a file, as a stream: all of them when the job starts, and again whenever the file changes. And
orders from a folder (control.py), one by one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

from millpond.apps.frequency_capping.config import CappingConfig, default_config, load_config
from millpond.apps.frequency_capping.control import ControlFolder
from millpond.apps.frequency_capping.rules import RuleError, TimesToLive, parse_rules
from millpond.datastream.connectors.base import Source, SplitEnumerator, SplitWork
from millpond.datastream.functions import RuntimeContext

_LOOK_EVERY_MS = 1000
_log = logging.getLogger(__name__)


class RulesSource(Source):
    """`path`: of the file; None for the rules that count without one. `control`: the folder for orders.
    `lives`: longer rules are refused."""

    bounded = False
    endless = True

    def __init__(self, path: str | None, control: str, lives: TimesToLive) -> None:
        self._path = path
        self._control = control
        self._lives = lives

    def create_enumerator(self, parallelism: int, context: RuntimeContext) -> SplitEnumerator:
        return _RulesEnumerator(self._path, ControlFolder(self._control), self._lives)

    def read(self, arguments: str) -> Iterator[tuple[Any, int | None]]:
        yield json.loads(arguments), None


class _RulesEnumerator(SplitEnumerator):
    """The position is what was handed out last: rules, and the name of an order."""

    def __init__(self, path: str | None, control: ControlFolder, lives: TimesToLive) -> None:
        super().__init__()
        self._lives = lives
        self._path = path
        self._control = control
        self._order = ""
        self._current: str | None = None
        self._refused: str | None = None

    def split_count(self) -> int:
        return 1

    def poll(self, max_records: int) -> list[SplitWork]:
        works = self._new_rules()
        for name, order in self._control.new_orders(self._order):
            works.append(SplitWork(0, order))
            self._order = name
        return works

    def _new_rules(self) -> list[SplitWork]:
        try:
            config = default_config() if self._path is None else load_config(self._path)
            self._check_length(config)
        except RuleError as problem:
            if self._current is None:
                raise
            if str(problem) != self._refused:  # once, not every two seconds
                _log.warning("%s The rules stay as they were.", problem)
            self._refused = str(problem)
            return []
        self._refused = None
        text = json.dumps({"rules": config.rules}, sort_keys=True)
        if text == self._current:
            return []
        self._current = text
        return [SplitWork(0, text)]

    def _check_length(self, config: CappingConfig) -> None:
        try:
            self._lives.check(parse_rules(config.rules).values())
        except RuleError as problem:
            raise RuleError(f"{self._path}: {problem}.") from None

    def position(self) -> tuple[str | None, str]:
        return self._current, self._order

    def restore(self, position: tuple[str | None, str]) -> None:
        self._current, self._order = position

    def ended(self) -> list[bool]:
        return [False]

    def caught_up(self) -> bool:
        return True

    def next_poll_in_ms(self) -> int | None:
        return _LOOK_EVERY_MS
