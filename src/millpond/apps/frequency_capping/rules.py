"""Rules: which views count, for what, for how long, and how many are too many.

A file of rules is YAML (config.py); `docs/guide/frequency-capping.md` describes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from millpond.apps.frequency_capping.times import TIME_SIZE
from millpond.apps.frequency_capping.windows import (
    NEVER,
    Window,
    WindowError,
    parse_duration,
    parse_window,
)
from millpond.common.time import MIN_TIMESTAMP
from millpond.errors import ProgramError

# Levels with short names; any other level is the name of a field.
LEVELS = {
    "ad": "da_id",
    "ad_set": "ad_set_id",
    "campaign": "campaign_id",
    "advertiser": "advertiser_id",
}
DEFAULT_RULES: list[dict[str, Any]] = [
    {"name": "default", "level": "ad", "limit": 5, "window": "5d"},
]
GONE_RULE_MS = 3_600_000
_MOST_TIMES = 1000
_KEYS = {"name", "level", "event", "limit", "window", "cool_down", "where", "enabled"}


class RuleError(ProgramError):
    """A rule that cannot be used; the text says why and, if it comes from a file, where it is. `key` names
    the part of the rule that is wrong, if it is a single one."""

    def __init__(self, text: str, key: str | None = None) -> None:
        self.key = key
        super().__init__(text)


@dataclass(frozen=True)
class Rule:
    """A rule. `spec` is what the user wrote, from which the other fields are derived.

    The rule does not know views before `from_ms`. If `gone_until_ms` is set, the rule is no longer among the
    rules and caps nothing, but continues to count until then in case it comes back (rulebook.py)."""

    name: str
    level: str
    field: str
    event: str
    limit: int
    window: Window
    cool_down_ms: int
    where: tuple[tuple[str, frozenset[str]], ...]
    enabled: bool
    spec: Mapping[str, Any]
    from_ms: int = MIN_TIMESTAMP
    gone_until_ms: int | None = None

    @cached_property
    def matters_until(self) -> Callable[[int], int]:
        """A function from a view's time to the time until which it can make a difference: while it counts,
        and then while something can still be capped because it did."""
        expiry, cool_down_ms = self.window.expiry, self.cool_down_ms
        return (lambda time_ms: expiry(time_ms) + cool_down_ms) if cool_down_ms else expiry

    def first_known(self, now_ms: int) -> int:
        """Return the earliest time of a view that can make a difference at `now_ms`."""
        return self.window.first_after(now_ms - self.cool_down_ms)

    def capped_until(self, times: Sequence[int]) -> int:
        """Return until when a pair is capped if no more views come; it is not capped if that is not in the
        future. `times` are those of its views, ascending; views that no longer matter may be left out."""
        limit, expiry = self.limit, self.window.expiry
        if not self.enabled or len(times) < limit:
            return MIN_TIMESTAMP
        end_ms = expiry(times[-limit])
        if self.cool_down_ms:
            for last in range(len(times) - 1, limit - 2, -1):
                if expiry(times[last - limit + 1]) > times[last]:  # they counted together
                    return max(end_ms, times[last] + self.cool_down_ms)
        return end_ms

    @property
    def longest_ms(self) -> int:
        """How long a view can matter at most; NEVER if it matters forever."""
        return min(NEVER, self.window.longest_ms + self.cool_down_ms)

    @cached_property
    def needs_fields(self) -> bool:
        """Whether the ad alone does not tell what a view counts for."""
        return self.level != "ad" or bool(self.where)

    def id_in(self, fields: Mapping[str, object]) -> str | None:
        """Return the id for which the rule counts a view with these fields; None if it does not count it."""
        for name, values in self.where:
            value = fields.get(name)
            if (value if type(value) is str else text_of(value)) not in values:
                return None
        found = fields.get(self.field)
        if type(found) is str:
            return found or None
        return None if found is None else text_of(found)

    @cached_property
    def pair_of(self) -> Callable[[str], str]:
        """A function from an id to the name of the pair of this rule and the id. It mostly returns the same
        object for the same id, so that users share it."""
        name = self.name
        return lru_cache(maxsize=1 << 16)(lambda found: f"{name}\x00{found}")

    @cached_property
    def limit_size(self) -> int:
        """The size in bytes of as many packed times as the limit (times.py)."""
        return self.limit * TIME_SIZE

    @cached_property
    def most_times(self) -> int:
        """How many views of a pair are kept at most; more would make no difference."""
        return max(_MOST_TIMES, 2 * self.limit)

    @cached_property
    def counts_as(self) -> tuple[object, ...]:
        """What determines which views count; rules that are equal in this count the same views."""
        return self.level, self.event, self.where


def text_of(value: object) -> str:
    """Return a value as people write it in a rule: 42 is the same as "42", and None is empty."""
    if value is True or value is False:
        return "true" if value else "false"
    return value if isinstance(value, str) else "" if value is None else str(value)


def parse_rule(spec: object) -> Rule:
    """Return the rule that a user wrote. Raise RuleError with the reason, but no line, if it is wrong."""
    if not isinstance(spec, dict):
        raise RuleError(f"{spec!r} is not a rule")
    unknown = sorted(set(map(str, spec)) - _KEYS)
    if unknown:
        known = ", ".join(sorted(_KEYS))
        raise RuleError(f"a rule has no {', '.join(unknown)}; it has {known}", unknown[0])
    name = spec.get("name")
    if not isinstance(name, str) or not name or any(c in name for c in "\x00\n"):
        raise RuleError("a rule needs a name")
    limit = spec.get("limit")
    if type(limit) is not int or not 1 <= limit <= 1_000_000:
        raise RuleError(f"limit must be a whole number from 1 to 1000000, not {limit!r}", "limit")
    level, event = spec.get("level", "ad"), spec.get("event", "view")
    if not isinstance(level, str) or not level or ":" in level:
        raise RuleError(
            f"level must be {', '.join(LEVELS)}, or the name of a field, not {level!r}", "level"
        )
    if not isinstance(event, str) or not event:
        raise RuleError(f"event must be text, not {event!r}", "event")
    enabled = spec.get("enabled", True)
    if not isinstance(enabled, bool):
        raise RuleError(f"enabled must be true or false, not {enabled!r}", "enabled")
    if "window" not in spec:
        raise RuleError("a rule needs a window, such as 5d")
    part = "window"
    try:
        window = parse_window(spec["window"])
        part = "cool_down"
        cool_down_ms = parse_duration(spec["cool_down"]) if spec.get("cool_down") else 0
    except WindowError as problem:
        raise RuleError(f"{part}: {problem}", part) from None
    where = parse_filter(spec.get("where") or {}, "where")
    field = LEVELS.get(level, level)
    return Rule(name, level, field, event, limit, window, cool_down_ms, where, enabled, dict(spec))


def parse_filter(spec: object, what: str) -> tuple[tuple[str, frozenset[str]], ...]:
    """Return a filter as (field, allowed values). A user writes it as a map from fields to a value or
    several; a record passes if every field has one of its values. Raise RuleError, with the key `what`, if it
    is wrong."""
    if not isinstance(spec, dict):
        raise RuleError(f"{what} must map fields to values, such as country: [DE, AT]", what)
    found = []
    for name, values in sorted(spec.items(), key=lambda item: str(item[0])):
        listed = values if isinstance(values, list) else [values]
        if not isinstance(name, str) or not name:
            raise RuleError(f"{what}: {name!r} is not the name of a field", what)
        if not listed or any(not isinstance(value, (str, int, float)) for value in listed):
            raise RuleError(f"{what}: {name} must have a value, or a list of values", what)
        found.append((str(name), frozenset(map(text_of, listed))))
    return tuple(found)


def parse_rules(specs: object) -> dict[str, Rule]:
    """Return the rules that a user wrote, by name. Raise RuleError if one of them is wrong or two have the
    same name."""
    if not isinstance(specs, list):
        raise RuleError("rules must be a list")
    rules: dict[str, Rule] = {}
    for spec in specs:
        rule = parse_rule(spec)
        if rule.name in rules:
            raise RuleError(f"there are two rules with the name {rule.name!r}")
        rules[rule.name] = rule
    return rules


@dataclass(frozen=True)
class TimesToLive:
    """How long things are kept.

    `redis_ms` is how long Redis keeps a user about whom it is told nothing, and `state_ms` how long state
    keeps an entry that is not written; None means forever. Both are safety nets. `gone_rule_ms` is how long a
    rule that vanishes continues to count; 0 means not at all."""

    redis_ms: int | None = None
    state_ms: int | None = None
    gone_rule_ms: int = GONE_RULE_MS

    def check(self, rules: Iterable[Rule]) -> None:
        """Raise RuleError if something that one of the rules still needs could be gone."""
        for rule in rules:
            if self.redis_ms is not None and self.redis_ms <= max(
                rule.window.longest_ms, rule.cool_down_ms
            ):
                raise RuleError(
                    f"rule {rule.name!r} can cap for longer than --redis-ttl, so Redis could forget a cap "
                    "too early"
                )
            # A view that comes late makes its entry as old as the view itself.
            if self.state_ms is not None and self.state_ms < 2 * rule.longest_ms:
                raise RuleError(
                    f"--state-ttl must be at least twice as long as a view can matter to rule {rule.name!r}"
                )
