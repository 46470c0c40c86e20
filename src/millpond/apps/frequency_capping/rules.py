"""Rules: which views of what count how long, and how many are enough.

A file of rules is YAML (config.py); `docs/guide/frequency-capping.md` describes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from millpond.apps.frequency_capping.windows import (
    Window,
    WindowError,
    parse_duration,
    parse_window,
)
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
_KEYS = {"name", "level", "event", "limit", "window", "cool_down", "where", "enabled"}


class RuleError(ProgramError):
    """A rule that cannot be used, with where it stands and why. `key`: which part of it."""

    def __init__(self, text: str, key: str | None = None) -> None:
        self.key = key
        super().__init__(text)


@dataclass(frozen=True)
class Rule:
    """`spec` is what the user wrote; the rest is made of it."""

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

    @cached_property
    def needs_fields(self) -> bool:
        """True if the ad alone does not tell what a view counts for."""
        return self.level != "ad" or bool(self.where)

    def id_in(self, fields: Mapping[str, Any]) -> str | None:
        """What the rule counts a view with these fields for; None if it does not count it."""
        for name, values in self.where:
            if text_of(fields.get(name)) not in values:
                return None
        found = fields.get(self.field)
        return None if found is None or found == "" else text_of(found)

    @cached_property
    def counts_as(self) -> tuple[Any, ...]:
        """Rules that are alike in this count the same views."""
        return self.level, self.event, self.where


def text_of(value: Any) -> str:
    """As people write it in a rule: 42 is the same as "42"."""
    if value is True or value is False:
        return "true" if value else "false"
    return value if isinstance(value, str) else "" if value is None else str(value)


def parse_rule(spec: Any) -> Rule:
    """Raises RuleError with the reason alone."""
    if not isinstance(spec, dict):
        raise RuleError(f"{spec!r} is no rule")
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
            f"level must be {', '.join(LEVELS)}, or a field's name, not {level!r}", "level"
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


def parse_filter(spec: Any, what: str) -> tuple[tuple[str, frozenset[str]], ...]:
    """Field -> a value, or several: of records whose every field has one of its values."""
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


def parse_rules(specs: Any) -> dict[str, Rule]:
    """By name."""
    if not isinstance(specs, list):
        raise RuleError("rules must be a list")
    rules: dict[str, Rule] = {}
    for spec in specs:
        rule = parse_rule(spec)
        if rule.name in rules:
            raise RuleError(f"there are two rules with the name {rule.name!r}")
        rules[rule.name] = rule
    return rules


def encode_rules(rules: Mapping[str, Rule]) -> str:
    """For broadcast state: the same text for the same rules."""
    return json.dumps([dict(rule.spec) for rule in rules.values()], sort_keys=True)


def decode_rules(text: str | None) -> dict[str, Rule]:
    return {} if text is None else parse_rules(json.loads(text))


def changed_rules(rules: dict[str, Rule], message: Any) -> dict[str, Rule]:
    """Rules after a message: {"rules": [...]} for all of them, {"rule": {...}} for one, {"delete": name}."""
    if not isinstance(message, dict) or len(message) != 1:
        raise RuleError('a message is {"rules": [...]}, {"rule": {...}} or {"delete": "name"}')
    ((kind, content),) = message.items()
    if kind == "rules":
        return parse_rules(content)
    if kind == "rule":
        rule = parse_rule(content)
        return {**rules, rule.name: rule}
    if kind == "delete":
        return {name: rule for name, rule in rules.items() if name != content}
    raise RuleError(f"a message cannot have {kind!r}; it has rules, rule or delete")
