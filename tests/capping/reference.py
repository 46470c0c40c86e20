"""What frequency capping is to do, as plainly as possible: all views in a list, counted anew at every moment.

Nothing of the app is used but the meaning of its words:

- A view at time t counts from t up to, not including, t + window. One that came late counts from then on.
- At event time T a pair is capped when at least `limit` of its views count. With a cool-down also for so long
  after each view that made it as many, or more.
- Rules change at a moment. One that is new, or counts other things than before, knows the views from then on.
  One that is changed otherwise knows also the views that mattered to it at that moment.
- A rule that is left out of the rules goes on counting for a grace period, in case it comes back before it is
  over; so what it needs is kept. One that is deleted by its name is gone.
- Of two records of an impression the first counts.
"""

from __future__ import annotations

import datetime
import itertools
import zoneinfo
from dataclasses import dataclass, replace
from typing import Any

NEVER = 1 << 62
LONG_AGO = -NEVER
_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_FIELDS = {
    "ad": "da_id",
    "ad_set": "ad_set_id",
    "campaign": "campaign_id",
    "advertiser": "advertiser_id",
}
Record = dict[str, Any]
Rule = dict[str, Any]


@dataclass(frozen=True)
class Came:
    """A record, and where event time was when it came."""

    record: Record
    clock: int = LONG_AGO

    @property
    def time(self) -> int:
        return int(self.record["log_time"])

    @property
    def begins(self) -> int:
        """When it begins to count."""
        return max(self.time, self.clock)


@dataclass(frozen=True)
class Phase:
    """Rules, and from when on they are in force. `after`: they came when event time was there already, after
    so many records; so what happened in that very millisecond was before them. `deleted`: the name of a rule
    that is gone for good. `kept`: rules that only go on counting (see `with_grace`)."""

    since: int
    rules: list[Rule]
    after: int | None = None
    deleted: str | None = None
    kept: tuple[Rule, ...] = ()

    def is_later_than(self, time: int) -> bool:
        return self.since > time or (self.after is not None and self.since == time)


def duration(text: str) -> int:
    return int(text[:-1]) * _UNITS[text[-1]]


def cool_down(rule: Rule) -> int:
    return duration(rule["cool_down"]) if rule.get("cool_down") else 0


def counts_until(time_ms: int, window: Any) -> int:
    if window == "lifetime":
        return NEVER
    if isinstance(window, str):
        return time_ms + duration(window)
    zone = zoneinfo.ZoneInfo(window.get("time_zone", "UTC"))
    day = datetime.datetime.fromtimestamp(time_ms / 1000, zone).date()
    if window["calendar"] == "day":
        end = day + datetime.timedelta(days=1)
    else:
        end = day + datetime.timedelta(days=7 - day.weekday())
    return int(datetime.datetime.combine(end, datetime.time(), zone).timestamp() * 1000)


def counted_by(record: Record, rule: Rule) -> str | None:
    """For which member a rule counts a record."""
    if record.get("event", "view") != rule.get("event", "view"):
        return None
    for name, wanted in rule.get("where", {}).items():
        values = wanted if isinstance(wanted, list) else [wanted]
        if record.get(name) not in values:
            return None
    found = record.get(_FIELDS.get(rule["level"], rule["level"]))
    return None if found is None else f"{rule['level']}:{found}"


# --- rules that change -------------------------------------------------------------------------------


def with_grace(phases: list[Phase], grace: int) -> list[Phase]:
    """The same phases, with the rules that go on counting, and a phase whenever one of them ceases to."""
    found: list[Phase] = []
    kept: dict[str, tuple[Rule, int]] = {}

    def end_graces(now: int) -> None:
        for end in sorted({end for _, end in kept.values() if end <= now}):
            for name in [name for name, own in kept.items() if own[1] == end]:
                del kept[name]
            still = tuple(rule for rule, _ in kept.values())
            found.append(Phase(end, found[-1].rules, kept=still))

    for phase in phases:
        end_graces(phase.since)
        for rule in found[-1].rules if found else []:
            kept[rule["name"]] = (rule, phase.since + grace)
        for name in [*(rule["name"] for rule in phase.rules), phase.deleted]:
            kept.pop(str(name), None)
        found.append(replace(phase, kept=tuple(rule for rule, _ in kept.values())))
    end_graces(NEVER)
    return found


def named(phase: Phase, name: str) -> Rule | None:
    return next((rule for rule in [*phase.rules, *phase.kept] if rule["name"] == name), None)


def counts_the_same(one: Rule, other: Rule) -> bool:
    def what(rule: Rule) -> Any:
        return rule["level"], rule.get("event", "view"), rule.get("where", {})

    return bool(what(one) == what(other))


def is_known(time: int, name: str, phases: list[Phase]) -> bool:
    """Whether a view of this time is known to the rule of this name, after all these phases."""
    for before, after in itertools.pairwise(phases):
        if after.is_later_than(time):
            old, new = named(before, name), named(after, name)
            if old is None or new is None or not counts_the_same(old, new):
                return False
            if old != new and counts_until(time, old["window"]) + cool_down(old) <= after.since:
                return False  # it no longer mattered
    return True


# --- duplicates --------------------------------------------------------------------------------------


def remembered(phase: Phase) -> int:
    """How long an impression is known: as long as any view can matter, but no more than 30 days."""
    lengths = [0]
    for rule in [*phase.rules, *phase.kept]:
        window = rule["window"]
        if isinstance(window, str):
            length = NEVER if window == "lifetime" else duration(window)
        else:
            length = _UNITS["h"] + _UNITS["d"] * (1 if window["calendar"] == "day" else 7)
        lengths.append(length + cool_down(rule))
    return min(max(lengths), 30 * _UNITS["d"])


def without_duplicates(records: list[Came], phases: list[Phase]) -> list[Came]:
    seen: dict[Any, int] = {}
    kept = []
    for number, came in sorted(enumerate(records), key=lambda own: (own[1].begins, own[0])):
        record = came.record
        phase = max(
            i
            for i, own in enumerate(phases)
            if own.since < came.begins
            or (own.since == came.begins and (own.after is None or own.after <= number))
        )
        name = (str(record["user_no"]), record.get("event", "view"), record.get("impression_id"))
        if name[2] is not None and name in seen:
            first, known = seen[name], remembered(phases[phase])
            forgotten = any(
                first + remembered(phases[i]) <= phases[i + 1].since for i in range(phase)
            )
            if abs(came.time - first) < known and came.begins < first + known and not forgotten:
                continue
        kept.append(came)
        seen[name] = came.time
    return kept


# --- what is capped ----------------------------------------------------------------------------------


def is_capped(times: list[int], rule: Rule, now: int) -> bool:
    """By a rule that knows views of these times, and no others."""

    def count(moment: int) -> int:
        return sum(time <= moment < counts_until(time, rule["window"]) for time in times)

    if not rule.get("enabled", True):
        return False
    if count(now) >= rule["limit"]:
        return True
    return any(
        time <= now < time + cool_down(rule) and count(time) >= rule["limit"] for time in times
    )


def capped(kept: list[Came], phases: list[Phase], now: int) -> dict[str, set[str]]:
    """User -> members that any rule caps at event time `now`; users without any are left out. `kept` are
    records without duplicates. `phases` are in order, and the first one is from the beginning."""
    begun = [phase for phase in phases if phase.since <= now]
    found: dict[str, set[str]] = {}
    for rule in begun[-1].rules:
        pairs: dict[tuple[str, str], list[int]] = {}
        for came in (own for own in kept if own.begins <= now):
            member = counted_by(came.record, rule)
            if member is not None and is_known(came.time, rule["name"], begun):
                pairs.setdefault((str(came.record["user_no"]), member), []).append(came.time)
        for (user, member), times in pairs.items():
            if is_capped(times, rule, now):
                found.setdefault(user, set()).add(member)
    return found


def capped_at(records: list[Record], rules: list[Rule], now: int) -> dict[str, set[str]]:
    """The same for records that came in time, and rules that never change."""
    phases = [Phase(LONG_AGO, rules)]
    return capped(without_duplicates([Came(record) for record in records], phases), phases, now)


def interesting_times(records: list[Came], phases: list[Phase]) -> list[int]:
    """Every moment at which something may change, and those before it."""
    moments = {phase.since for phase in phases}
    for came in records:
        moments |= {came.time, came.begins}
        for rule in (rule for phase in phases for rule in phase.rules):
            moments |= {counts_until(came.time, rule["window"]), came.time + cool_down(rule)}
    return sorted({m + d for m in moments if LONG_AGO < m < NEVER for d in (-1, 0)})
