"""Rules in force, and those to come: which views a rule knows, and how long impressions are remembered.

Rules change at a moment of event time. A rule that is new, or counts other things than before, knows the
views from then on. One that is changed otherwise knows also the views that mattered to it at that moment.
That is one number for each rule, `from_ms`, because of two views the later one never ages out first.

A rule that a list of all rules leaves out may be missing by mistake. So it only ceases to cap, and goes on
counting for a while of event time, a grace period. If it comes back before that is over, it is as if it had
never been away; a rule that is deleted by its name is gone at once.
"""

from __future__ import annotations

import bisect
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from millpond.apps.frequency_capping.rules import Rule, RuleError, parse_rule, parse_rules
from millpond.apps.frequency_capping.windows import DAY_MS, NEVER
from millpond.common.time import MIN_TIMESTAMP

_LONGEST_REMEMBERED_MS = 30 * DAY_MS
_LEAST_SWEEP_MS = 3_600_000


@dataclass(frozen=True)
class Rulebook:
    """Rules by name, those included that are gone but go on counting; from when on impressions are known; and
    how long rules go on counting that vanish from now on."""

    rules: Mapping[str, Rule]
    seen_from_ms: int = MIN_TIMESTAMP
    grace_ms: int = 0

    @cached_property
    def remembered_ms(self) -> int:
        """How long an impression is: as long as any view can matter, but no more than 30 days."""
        longest_ms = max((rule.longest_ms for rule in self.rules.values()), default=0)
        return min(longest_ms, _LONGEST_REMEMBERED_MS)

    @cached_property
    def by_event(self) -> dict[str, list[Rule]]:
        found: dict[str, list[Rule]] = {}
        for rule in self.rules.values():
            found.setdefault(rule.event, []).append(rule)
        return found

    @cached_property
    def sweep_every_ms(self) -> int:
        """How long what does not matter any more may stay."""
        shortest_ms = min((rule.longest_ms for rule in self.rules.values()), default=0)
        return max(_LEAST_SWEEP_MS, min(4 * shortest_ms, self.remembered_ms))

    def changed(self, message: Any, now_ms: int, new_from_ms: int) -> Rulebook:
        """After a message that counts at `now_ms`. Rules that are new know views from `new_from_ms` on."""
        in_force = {n: own for n, own in self.rules.items() if own.gone_until_ms is None}
        rules: dict[str, Rule] = {}
        for name, rule in changed_rules(in_force, message).items():
            old = self.rules.get(name)
            if old is None or old.counts_as != rule.counts_as:
                rules[name] = replace(rule, from_ms=new_from_ms)
            elif old.spec == rule.spec:
                is_back = old.gone_until_ms is not None
                rules[name] = replace(rule, from_ms=old.from_ms) if is_back else old
            else:
                rules[name] = replace(rule, from_ms=max(old.from_ms, old.first_known(now_ms)))
        for name, old in self.rules.items():
            if name not in rules and name != message.get("delete"):
                rules |= self._kept(old, now_ms)
        return replace(self, rules=rules, seen_from_ms=self._seen_from(now_ms))

    def _kept(self, rule: Rule, now_ms: int) -> dict[str, Rule]:
        """A rule that the others are told without."""
        if rule.gone_until_ms is not None:
            return {rule.name: rule}
        if self.grace_ms == 0 or now_ms == MIN_TIMESTAMP:  # then it has not counted anything
            return {}
        return {rule.name: replace(rule, enabled=False, gone_until_ms=now_ms + self.grace_ms)}

    def _seen_from(self, now_ms: int) -> int:
        if now_ms == MIN_TIMESTAMP:
            return self.seen_from_ms
        return max(self.seen_from_ms, now_ms - self.remembered_ms + 1)

    @cached_property
    def grace_ends_ms(self) -> int:
        """When the first of the rules that are gone ceases to count; NEVER if none is."""
        ends = [own.gone_until_ms for own in self.rules.values() if own.gone_until_ms is not None]
        return min(ends, default=NEVER)

    def after_grace(self, now_ms: int) -> Rulebook:
        """Without the rules that cease to count by then."""
        rules = {n: own for n, own in self.rules.items() if (own.gone_until_ms or NEVER) > now_ms}
        return replace(self, rules=rules, seen_from_ms=self._seen_from(now_ms))

    def differs_in(self, other: Rulebook) -> frozenset[str]:
        """Names of rules."""

        def what(rule: Rule | None) -> Any:
            return None if rule is None else (rule.spec, rule.from_ms, rule.gone_until_ms)

        names = self.rules.keys() | other.rules.keys()
        return frozenset(n for n in names if what(self.rules.get(n)) != what(other.rules.get(n)))


@dataclass(frozen=True)
class Version:
    """Rules that are in force from `from_ms` up to, not including, `until_ms`; and which of them are not as
    they were before."""

    from_ms: int
    until_ms: int
    book: Rulebook
    changed: frozenset[str]


@dataclass(frozen=True)
class RulePlan:
    """The rules in force, and messages to come: (time, message), in order of their time."""

    book: Rulebook
    to_come: tuple[tuple[int, Any], ...] = ()

    @property
    def next_message_ms(self) -> int:
        return self.to_come[0][0] if self.to_come else NEVER

    @cached_property
    def next_ms(self) -> int:
        """When the rules will change, if no more messages come; NEVER if they will not."""
        return min(self.next_message_ms, self.book.grace_ends_ms)

    def told(self, message: Any, now_ms: int) -> RulePlan:
        """After a message. If it is for later it waits; else it counts now, after what happened now."""
        at_ms = message_time(message)
        begun = self.begun(now_ms)
        if at_ms is not None and at_ms > now_ms:
            changed_rules({}, message)
            times = [time_ms for time_ms, _ in begun.to_come]
            place = bisect.bisect_right(times, at_ms)
            to_come = (*begun.to_come[:place], (at_ms, message), *begun.to_come[place:])
            return replace(begun, to_come=to_come)
        new_from_ms = now_ms if now_ms == MIN_TIMESTAMP else now_ms + 1
        return RulePlan(begun.book.changed(message, now_ms, new_from_ms), begun.to_come)

    def begun(self, now_ms: int) -> RulePlan:
        """What was to come, and has."""
        plan = self
        while (
            plan.next_ms <= now_ms and plan.next_ms < NEVER
        ):  # at the end of time it is later than that
            if plan.book.grace_ends_ms <= plan.next_message_ms:
                plan = replace(plan, book=plan.book.after_grace(plan.next_ms))
            else:
                (at_ms, message), *later = plan.to_come
                plan = RulePlan(plan.book.changed(message, at_ms, at_ms), tuple(later))
        return plan

    @cached_property
    def versions(self) -> list[Version]:
        found: list[Version] = []
        from_ms, plan, before = MIN_TIMESTAMP, self, self.book
        while True:
            until_ms = plan.next_ms
            found.append(Version(from_ms, until_ms, plan.book, plan.book.differs_in(before)))
            if until_ms == NEVER:
                return found
            from_ms, before = until_ms, plan.book
            plan = plan.begun(from_ms)

    def version_at(self, now_ms: int) -> Version:
        place = bisect.bisect_right(self.versions, now_ms, key=lambda own: own.from_ms)
        return self.versions[place - 1]


# --- in broadcast state ------------------------------------------------------------------------------
#
#     current         rules in force or gone, the grace period, how many messages were told, when rules
#                     will change next, a tag of all messages
#     TIME-NUMBER     a message to come
#
# So a message costs little however many are to come, and whoever compares `current` knows what is new.

CURRENT = "current"
_plans: dict[str | None, RulePlan] = {None: RulePlan(Rulebook({}))}
_MOST_PLANS = 16


def read_plan(state: Any) -> RulePlan:
    text = state.get(CURRENT)
    plan = _plans.get(text)
    if plan is None:
        content = json.loads(text)
        rules = [replace(parse_rule(spec), from_ms=from_ms) for spec, from_ms in content["rules"]]
        gone = content.get("gone", {})  # not in what older versions have written
        rules = [
            replace(rule, enabled=False, gone_until_ms=gone[rule.name])
            if rule.name in gone
            else rule
            for rule in rules
        ]
        by_name = {rule.name: rule for rule in rules}
        book = Rulebook(by_name, content["seen_from"], content.get("grace", 0))
        entries = sorted((key, value) for key, value in state.items() if key != CURRENT)
        plan = RulePlan(book, tuple((_time_in(key), json.loads(value)) for key, value in entries))
        while len(_plans) > _MOST_PLANS:
            _plans.pop(next(key for key in _plans if key is not None))
        _plans[text] = plan
    return plan


class Told(NamedTuple):
    """What a message has changed now: names of rules. And when rules will change next; NEVER if they will
    not."""

    changed: frozenset[str]
    next_ms: int


def tell(state: Any, message: Any, now_ms: int, grace_ms: int) -> Told:
    """Note a message. Raises RuleError, and changes nothing, if it is wrong. The grace period is of rules
    that vanish from now on, also by messages that wait."""
    at_ms = message_time(message)
    waits = at_ms is not None and at_ms > now_ms
    text = state.get(CURRENT)
    content: dict[str, Any] = {"rules": [], "seen_from": MIN_TIMESTAMP, "told": 0, "next": NEVER}
    content = {**content, "tag": ""} if text is None else json.loads(text)
    changed: frozenset[str] = frozenset()
    if waits and content["next"] > now_ms:
        changed_rules({}, message)
        content["next"] = min(content["next"], at_ms)
    else:
        before = read_plan(state).begun(now_ms)
        before = replace(before, book=replace(before.book, grace_ms=grace_ms))
        after = before.told(message, now_ms)
        changed = after.book.differs_in(before.book)
        rules = after.book.rules.values()
        content["rules"] = [[dict(own.spec), own.from_ms] for own in rules]
        content["gone"] = {
            own.name: own.gone_until_ms for own in rules if own.gone_until_ms is not None
        }
        content["seen_from"] = after.book.seen_from_ms
        content["next"] = after.next_ms
        for key, _ in list(state.items()):
            if key != CURRENT and _time_in(key) <= now_ms:
                state.remove(key)
    content["grace"] = grace_ms
    content["told"] += 1
    if waits:
        state.put(f"{at_ms:020d}-{content['told']:012d}", json.dumps(message, sort_keys=True))
    told = json.dumps([content["tag"], message, now_ms], sort_keys=True)
    content["tag"] = hashlib.sha256(told.encode()).hexdigest()
    state.put(CURRENT, json.dumps(content, sort_keys=True))
    return Told(changed, content["next"])


def _time_in(key: str) -> int:
    return int(key.partition("-")[0])


def message_time(message: Any) -> int | None:
    """From which event time on a message counts; None: as soon as it comes."""
    at_ms = message.get("at") if isinstance(message, dict) else None
    if at_ms is not None and (type(at_ms) is not int or not 0 <= at_ms < 1 << 53):
        raise RuleError(f"at must be a time in milliseconds, not {at_ms!r}")
    return at_ms


def changed_rules(rules: Mapping[str, Rule], message: Any) -> dict[str, Rule]:
    """Rules after a message: {"rules": [...]} for all of them, {"rule": {...}} for one, {"delete": name}."""
    kinds = set(message) - {"at"} if isinstance(message, dict) else set()
    if len(kinds) != 1:
        raise RuleError('a message is {"rules": [...]}, {"rule": {...}} or {"delete": "name"}')
    (kind,) = kinds
    content = message[kind]
    if kind == "rules":
        return parse_rules(content)
    if kind == "rule":
        rule = parse_rule(content)
        return {**rules, rule.name: rule}
    if kind == "delete":
        return {name: rule for name, rule in rules.items() if name != content}
    raise RuleError(f"a message cannot have {kind!r}; it has rules, rule or delete")
