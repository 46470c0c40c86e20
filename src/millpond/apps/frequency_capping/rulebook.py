"""Rules in force and rules to come: which views a rule knows, and how long impressions are remembered.

Rules change at a moment of event time. A rule that is new, or counts other views than before, knows the views
from then on. A rule that is changed in another way also knows the views that mattered to it at that moment.
One number per rule, `from_ms`, is enough for this, because of two views the later one never ages out first.

A rule that is left out of a list of all rules may be missing by mistake. So it only ceases to cap, and
continues to count for a grace period of event time. If it comes back before that is over, it is as if it had
never been away. A rule that is deleted by its name is gone at once.
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
from millpond.datastream.state import BroadcastState, ReadOnlyBroadcastState

Message = dict[str, Any]  # see `changed_rules`; "at" says when it takes effect
_LONGEST_REMEMBERED_MS = 30 * DAY_MS
_LEAST_SWEEP_MS = 3_600_000


@dataclass(frozen=True)
class Rulebook:
    """The rules at one time.

    `rules` are the rules by name, including those that are gone but continue to count. Impressions are known
    from `seen_from_ms` on. Rules that vanish from now on continue to count for `grace_ms`."""

    rules: Mapping[str, Rule]
    seen_from_ms: int = MIN_TIMESTAMP
    grace_ms: int = 0

    @cached_property
    def remembered_ms(self) -> int:
        """How long an impression is remembered: as long as any view can matter, but at most 30 days."""
        longest_ms = max((rule.longest_ms for rule in self.rules.values()), default=0)
        return min(longest_ms, _LONGEST_REMEMBERED_MS)

    @cached_property
    def by_event(self) -> dict[str, list[Rule]]:
        """The rules by the event that they count."""
        found: dict[str, list[Rule]] = {}
        for rule in self.rules.values():
            found.setdefault(rule.event, []).append(rule)
        return found

    @cached_property
    def sweep_every_ms(self) -> int:
        """How long state that no longer matters may stay before it is removed."""
        shortest_ms = min((rule.longest_ms for rule in self.rules.values()), default=0)
        return max(_LEAST_SWEEP_MS, min(4 * shortest_ms, self.remembered_ms))

    def changed(self, message: Message, now_ms: int, new_from_ms: int) -> Rulebook:
        """Return the rules after a message that takes effect at `now_ms`. New rules know views from
        `new_from_ms` on. Raise RuleError if the message is wrong."""
        in_force = {n: rule for n, rule in self.rules.items() if rule.gone_until_ms is None}
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
        """Return what is kept of a rule that a message leaves out: nothing, or the rule without its caps."""
        if rule.gone_until_ms is not None:
            return {rule.name: rule}
        # At MIN_TIMESTAMP the rule has not counted anything.
        if self.grace_ms == 0 or now_ms == MIN_TIMESTAMP:
            return {}
        return {rule.name: replace(rule, enabled=False, gone_until_ms=now_ms + self.grace_ms)}

    def _seen_from(self, now_ms: int) -> int:
        if now_ms == MIN_TIMESTAMP:
            return self.seen_from_ms
        return max(self.seen_from_ms, now_ms - self.remembered_ms + 1)

    @cached_property
    def grace_ends_ms(self) -> int:
        """When the first of the rules that are gone ceases to count; NEVER if none is gone."""
        ends = [
            rule.gone_until_ms for rule in self.rules.values() if rule.gone_until_ms is not None
        ]
        return min(ends, default=NEVER)

    def after_grace(self, now_ms: int) -> Rulebook:
        """Return the rules without those that are gone and have ceased to count by `now_ms`."""
        rules = {
            n: rule for n, rule in self.rules.items() if (rule.gone_until_ms or NEVER) > now_ms
        }
        return replace(self, rules=rules, seen_from_ms=self._seen_from(now_ms))

    def differs_in(self, other: Rulebook) -> frozenset[str]:
        """Return the names of the rules that are not the same in both."""

        def what(rule: Rule | None) -> object:
            return None if rule is None else (rule.spec, rule.from_ms, rule.gone_until_ms)

        names = self.rules.keys() | other.rules.keys()
        return frozenset(n for n in names if what(self.rules.get(n)) != what(other.rules.get(n)))


@dataclass(frozen=True)
class Version:
    """The rules that are in force from `from_ms` up to, but not including, `until_ms`. `changed` are the
    names of those that differ from the version before."""

    from_ms: int
    until_ms: int
    book: Rulebook
    changed: frozenset[str]


@dataclass(frozen=True)
class RulePlan:
    """The rules in force, and messages that take effect later, as (time, message) in the order of time."""

    book: Rulebook
    to_come: tuple[tuple[int, Message], ...] = ()

    @property
    def next_message_ms(self) -> int:
        """When the next message takes effect; NEVER if there is none."""
        return self.to_come[0][0] if self.to_come else NEVER

    @cached_property
    def next_ms(self) -> int:
        """When the rules will change next if no more messages come; NEVER if they will not."""
        return min(self.next_message_ms, self.book.grace_ends_ms)

    def told(self, message: Message, now_ms: int) -> RulePlan:
        """Return the plan after a message. A message for later waits; any other takes effect now, after all
        that has happened at `now_ms`. Raise RuleError if the message is wrong."""
        at_ms = message_time(message)
        begun = self.begun(now_ms)
        if at_ms is not None and at_ms > now_ms:
            changed_rules({}, message)
            times = [time_ms for time_ms, _ in begun.to_come]
            index = bisect.bisect_right(times, at_ms)
            to_come = (*begun.to_come[:index], (at_ms, message), *begun.to_come[index:])
            return replace(begun, to_come=to_come)
        new_from_ms = now_ms if now_ms == MIN_TIMESTAMP else now_ms + 1
        return RulePlan(begun.book.changed(message, now_ms, new_from_ms), begun.to_come)

    def begun(self, now_ms: int) -> RulePlan:
        """Return the plan at `now_ms`, when some messages have taken effect and grace periods have ended."""
        plan = self
        # At the end of time, `now_ms` is later than NEVER.
        while plan.next_ms <= now_ms and plan.next_ms < NEVER:
            if plan.book.grace_ends_ms <= plan.next_message_ms:
                plan = replace(plan, book=plan.book.after_grace(plan.next_ms))
            else:
                (at_ms, message), *later = plan.to_come
                plan = RulePlan(plan.book.changed(message, at_ms, at_ms), tuple(later))
        return plan

    @cached_property
    def versions(self) -> list[Version]:
        """All versions of the rules, now and later, if no more messages come; the first one begins at the
        beginning of time."""
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
        """Return the version that is in force at `now_ms`."""
        index = bisect.bisect_right(self.versions, now_ms, key=lambda version: version.from_ms)
        return self.versions[index - 1]


# --- in broadcast state ------------------------------------------------------------------------------
#
#     current         rules in force or gone, the grace period, the number of messages so far, when rules
#                     will change next, a tag of all messages
#     TIME-NUMBER     a message that takes effect later
#
# So a message costs little, however many are waiting, and comparing `current` shows whether anything is new.

CURRENT = "current"
_plans: dict[str | None, RulePlan] = {None: RulePlan(Rulebook({}))}
_MOST_PLANS = 16


def read_plan(state: ReadOnlyBroadcastState[str, str]) -> RulePlan:
    """Return the plan in broadcast state; the newest plans are cached."""
    text = state.get(CURRENT)
    plan = _plans.get(text)
    if plan is None:
        assert text is not None  # the plan of None is always there
        content = json.loads(text)
        rules = [replace(parse_rule(spec), from_ms=from_ms) for spec, from_ms in content["rules"]]
        gone = content.get("gone", {})  # older versions do not write it
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
    """What a message has changed: the names of rules that change now, and when rules will change next, NEVER
    if they will not."""

    changed: frozenset[str]
    next_ms: int


def tell(state: BroadcastState[str, str], message: Message, now_ms: int, grace_ms: int) -> Told:
    """Store a message in broadcast state, and return what it changes. Raise RuleError and change nothing if
    it is wrong. The grace period applies to rules that vanish from now on, even by messages that wait."""
    at_ms = message_time(message)
    waits_until_ms = at_ms if at_ms is not None and at_ms > now_ms else None
    text = state.get(CURRENT)
    content: dict[str, Any] = {"rules": [], "seen_from": MIN_TIMESTAMP, "told": 0, "next": NEVER}
    content = {**content, "tag": ""} if text is None else json.loads(text)
    changed: frozenset[str] = frozenset()
    if waits_until_ms is not None and content["next"] > now_ms:
        changed_rules({}, message)
        content["next"] = min(content["next"], waits_until_ms)
    else:
        before = read_plan(state).begun(now_ms)
        before = replace(before, book=replace(before.book, grace_ms=grace_ms))
        after = before.told(message, now_ms)
        changed = after.book.differs_in(before.book)
        rules = after.book.rules.values()
        content["rules"] = [[dict(rule.spec), rule.from_ms] for rule in rules]
        content["gone"] = {
            rule.name: rule.gone_until_ms for rule in rules if rule.gone_until_ms is not None
        }
        content["seen_from"] = after.book.seen_from_ms
        content["next"] = after.next_ms
        for key, _ in list(state.items()):
            if key != CURRENT and _time_in(key) <= now_ms:
                state.remove(key)
    content["grace"] = grace_ms
    content["told"] += 1
    if waits_until_ms is not None:
        key = f"{waits_until_ms:020d}-{content['told']:012d}"
        state.put(key, json.dumps(message, sort_keys=True))
    told = json.dumps([content["tag"], message, now_ms], sort_keys=True)
    content["tag"] = hashlib.sha256(told.encode()).hexdigest()
    state.put(CURRENT, json.dumps(content, sort_keys=True))
    return Told(changed, content["next"])


def _time_in(key: str) -> int:
    return int(key.partition("-")[0])


def message_time(message: object) -> int | None:
    """Return the event time at which a message takes effect; None if it does so as soon as it comes. Raise
    RuleError if it names a time that is not one."""
    at_ms = message.get("at") if isinstance(message, dict) else None
    if at_ms is not None and (type(at_ms) is not int or not 0 <= at_ms < 1 << 53):
        raise RuleError(f"at must be a time in milliseconds, not {at_ms!r}")
    return at_ms


def changed_rules(rules: Mapping[str, Rule], message: object) -> dict[str, Rule]:
    """Return the rules by name after a message: {"rules": [...]} replaces all of them, {"rule": {...}} adds
    or replaces one, and {"delete": name} removes one. Raise RuleError if it is none of these."""
    if not isinstance(message, dict) or len(set(message) - {"at"}) != 1:
        raise RuleError('a message is {"rules": [...]}, {"rule": {...}} or {"delete": "name"}')
    (kind,) = set(message) - {"at"}
    content = message[kind]
    if kind == "rules":
        return parse_rules(content)
    if kind == "rule":
        rule = parse_rule(content)
        return {**rules, rule.name: rule}
    if kind == "delete":
        return {name: rule for name, rule in rules.items() if name != content}
    raise RuleError(f"a message cannot have {kind!r}; it has rules, rule or delete")
