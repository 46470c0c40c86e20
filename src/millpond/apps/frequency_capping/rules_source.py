"""A source of rules and orders: all rules of a file when the job starts, and again whenever the file changes
(rules_file.py); and orders from a folder, one by one (control.py).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

from millpond.apps.frequency_capping.config import CappingConfig, default_config
from millpond.apps.frequency_capping.control import ControlFolder
from millpond.apps.frequency_capping.rules import RuleError, TimesToLive, parse_rules
from millpond.apps.frequency_capping.rules_file import Look, RulesFile, look_at
from millpond.datastream.connectors.base import Source, SplitEnumerator, SplitWork
from millpond.datastream.functions import RuntimeContext

_LOOK_EVERY_MS = 1000
_log = logging.getLogger(__name__)


class RulesSource(Source):
    """Reads rules and orders.

    `path` is that of the file of rules; None stands for the default rules. `control` is the folder for
    orders. Rules that need more than `lives` allows are refused. With `expects_rules`, a file without
    `rules:` is refused, even the first time."""

    bounded = False
    endless = True

    def __init__(
        self,
        path: str | None,
        control: str,
        lives: TimesToLive,
        expects_rules: bool = False,
        look_every_ms: int = _LOOK_EVERY_MS,
    ) -> None:
        self._path = path
        self._control = control
        self._lives = lives
        self._expects_rules = expects_rules
        self._look_every_ms = look_every_ms
        self._first = Look() if path is None else look_at(path)

    def create_enumerator(self, parallelism: int, context: RuntimeContext) -> SplitEnumerator:
        file = None
        if self._path is not None:
            file = RulesFile(self._path, self._first, self._look_every_ms)
        control = ControlFolder(self._control)
        return _RulesEnumerator(self._path, file, control, self._lives, self._expects_rules)

    def read(self, arguments: str) -> Iterator[tuple[object, int | None]]:
        yield json.loads(arguments), None


class _RulesEnumerator(SplitEnumerator):
    """The position consists of what was handed out last: rules, and the name of an order."""

    def __init__(
        self,
        path: str | None,
        file: RulesFile | None,
        control: ControlFolder,
        lives: TimesToLive,
        expects_rules: bool,
    ) -> None:
        super().__init__()
        self._path = path
        self._file = file
        self._control = control
        self._lives = lives
        self._expects_rules = expects_rules
        self._is_first_poll = True
        self._order = ""
        self._current: str | None = None

    def split_count(self) -> int:
        return 1

    def poll(self, max_records: int) -> list[SplitWork]:
        works = self._new_rules()
        for name, order in self._control.new_orders(self._order):
            works.append(SplitWork(0, order))
            self._order = name
        return works

    def _new_rules(self) -> list[SplitWork]:
        if self._file is None:
            return self._hand_out(default_config())
        is_first, self._is_first_poll = self._is_first_poll, False
        look = self._file.await_settled() if is_first else self._file.settled()
        if look is None:
            if self._current is None:
                raise RuleError(
                    f"The rules {self._path} keep changing: stop what is writing the file."
                )
            return []
        try:
            config = look.config(str(self._path))
            self._check(config)
        except RuleError as problem:
            if self._current is None:
                raise
            _log.warning("%s The rules stay as they were.", problem)
            return []
        return self._hand_out(config)

    def _check(self, config: CappingConfig) -> None:
        """Raise RuleError if the rules cannot be used. Missing rules are refused, because what the former
        rules have counted would be forgotten."""
        had_rules = self._expects_rules if self._current is None else self._is_new(config)
        if had_rules and not config.names_rules:
            raise RuleError(
                f"{self._path}: `rules:` is missing, although it was there before. Put it back; if there "
                "should be no rules at all, write `rules: []`."
            )
        try:
            self._lives.check(parse_rules(config.rules).values())
        except RuleError as problem:
            raise RuleError(f"{self._path}: {problem}.") from None

    def _is_new(self, config: CappingConfig) -> bool:
        return _text_of(config) != self._current

    def _hand_out(self, config: CappingConfig) -> list[SplitWork]:
        if not self._is_new(config):
            return []
        if self._current is not None:
            self._warn_of_gone(_names_in(self._current), [rule["name"] for rule in config.rules])
        self._current = _text_of(config)
        return [SplitWork(0, self._current)]

    def _warn_of_gone(self, before: list[str], after: list[str]) -> None:
        gone = [repr(name) for name in before if name not in after]
        if gone:
            _log.warning(
                "%s no longer has %s, which therefore caps nothing any more. What was counted is kept for "
                "%d s of event time (--rules-grace); put it back before that if this is a mistake.",
                self._path or "The job, now without a file of rules,",
                ", ".join(gone),
                self._lives.gone_rule_ms // 1000,
            )

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


def _text_of(config: CappingConfig) -> str:
    return json.dumps({"rules": config.rules}, sort_keys=True)


def _names_in(text: str) -> list[str]:
    return [rule["name"] for rule in json.loads(text)["rules"]]
