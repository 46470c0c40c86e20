"""The app agrees with a plain reference on random histories, at every moment (P1-P3, P7)."""

from __future__ import annotations

import json
import os
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.apps.frequency_capping.capping import CapUsers
from millpond.apps.frequency_capping.config import default_config
from millpond.apps.frequency_capping.pipeline import (
    CappingJob,
    ReadRecords,
    event_time,
    time_of_rules,
)
from millpond.apps.frequency_capping.records import RecordFormat
from millpond.apps.frequency_capping.rules import TimesToLive
from millpond.apps.frequency_capping.user_state import CAP, LATE, RULES
from millpond.common import RestartStrategies
from millpond.testing import CUT, MarkedSource, direct_environment
from tests.capping import reference
from tests.capping.reference import Came, Phase

DAY = 86_400_000
START = 1_700_000_000_000  # a Tuesday in November
HOUR = 3_600_000
WINDOWS: list[Any] = [
    "1h",
    "5d",
    "90s",
    "lifetime",
    {"calendar": "day"},
    {"calendar": "day", "time_zone": "America/New_York"},
    {"calendar": "day", "time_zone": "America/Santiago"},
    {"calendar": "week", "time_zone": "Europe/Berlin"},
]


class Watched(CapUsers):
    """Notes what comes, and where event time is then; how many entries user 1 has after each timer; and fails
    once at some records."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        number = len(_came)
        if number in _failures:
            _failures.remove(number)
            raise RuntimeError("a failure")
        more = {} if value[5] is None else json.loads(value[5])
        _came.append((more.get("number"), ctx.current_watermark()))
        return super().process_element(value, ctx)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        number, message = value
        _came.append((("message", number, json.dumps(message)), ctx.current_watermark()))
        return super().process_broadcast_element(message, ctx)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        changes = super().on_timer(timestamp, ctx)
        if ctx.get_current_key() == "1":
            states = (self._agenda, self._views, self._seen, self._capped, self._members)
            _entries.append(sum(len(list(state.keys())) for state in states))
        return changes


class Unswept(Watched):
    """As if what removes old entries had a fault."""

    def _sweep(self, now_ms: int) -> None:
        pass


# The direct executor runs in this process, with copies of functions.
_entries: list[int] = []
_came: list[tuple[Any, int]] = []
_failures: set[int] = set()


def run(
    batches: list[list[dict[str, Any]]],
    rules: list[dict[str, Any]] | list[list[Any]],
    out_of_orderness_ms: int = 0,
    function: type[CapUsers] = CapUsers,
    lives: TimesToLive | None = None,
    **settings: Any,
) -> tuple[list[Any], list[Any]]:
    """(changes, late records) of a job that reads these batches. Rules: those from the start on, or the
    messages that come with each batch."""
    environment = direct_environment(settings)
    environment.get_config().set_restart_strategy(RestartStrategies.fixed_delay_restart(99, 0))
    lines = [item for batch in batches for item in (*map(json.dumps, batch), CUT)]
    first_rules = rules and isinstance(rules[0], dict)
    messages = [[{"rules": rules}]] if first_rules else rules
    told: list[Any] = [item for batch in messages for item in (*batch, CUT)]  # type: ignore[misc]
    if issubclass(function, Watched):
        told = [own if own is CUT else (number, own) for number, own in enumerate(told)]
    source = MarkedSource(lines)
    job = CappingJob(source, default_config(), None, "", "", "", out_of_orderness_ms, True)
    stream = environment._source(source, "records", None)
    views = stream.process(ReadRecords(RecordFormat())).assign_timestamps_and_watermarks(
        event_time(job)
    )
    rule_stream = environment.from_source(MarkedSource(told), time_of_rules(), "rules")
    changes = (
        views.key_by(lambda arrival: arrival[0])
        .connect(rule_stream.broadcast(RULES))
        .process(function(None, lives))
        .uid("cap users")
    )
    both = changes.map(lambda change: ("change", change)).union(
        changes.get_side_output(LATE).map(lambda arrival: ("late", arrival))
    )
    found = list(both.execute_and_collect())
    return [v for kind, v in found if kind == "change"], [v for k, v in found if k == "late"]


def state_at(changes: list[Any], now: int) -> dict[str, set[str]]:
    """What Redis has when event time is `now`."""
    found: dict[str, set[str]] = {}
    for user, member, action, time_ms, _ in sorted(changes, key=lambda change: change[3]):
        if time_ms <= now:
            own = found.setdefault(user, set())
            if action == CAP:
                assert member not in own, "capped twice"
                own.add(member)
            else:
                own.remove(member)
    return {user: members for user, members in found.items() if members}


def record(user: Any, ad: str, time_ms: int, **more: Any) -> dict[str, Any]:
    return {"user_no": user, "da_id": ad, "log_time": START + time_ms, **more}


RULE = st.fixed_dictionaries(
    {
        "name": st.just(""),
        "level": st.sampled_from(["ad", "ad_set", "campaign", "advertiser", "color"]),
        "limit": st.integers(1, 4),
        "window": st.sampled_from(WINDOWS),
    },
    optional={
        "event": st.sampled_from(["view", "click"]),
        "cool_down": st.sampled_from(["30s", "2h", "3d"]),
        "where": st.sampled_from([{"country": "DE"}, {"country": ["DE", "AT"], "color": "red"}]),
        "enabled": st.booleans(),
    },
)
RULE_SETS = st.lists(RULE, min_size=1, max_size=3).map(
    lambda rules: [{**rule, "name": f"rule {n}"} for n, rule in enumerate(rules)]
)
# Before summer time begins in New York, and ends in Berlin, and in Santiago, where that is at midnight.
STARTS = [START, 1_709_913_600_000, 1_729_728_000_000, 1_712_275_200_000]


def records_from(start_ms: int) -> st.SearchStrategy[list[dict[str, Any]]]:
    times = st.one_of(st.integers(0, 20), st.integers(0, 6 * 24).map(lambda h: h * HOUR))
    record = st.fixed_dictionaries(
        {
            "user_no": st.sampled_from([1, "1", "ann"]),
            "da_id": st.sampled_from(["a", "b"]),
            "log_time": times.map(lambda t: start_ms + t),
        },
        optional={
            "ad_set_id": st.sampled_from(["s", 7]),
            "campaign_id": st.just("c"),
            "advertiser_id": st.just("x"),
            "color": st.sampled_from(["red", "blue"]),
            "country": st.sampled_from(["DE", "AT", "FR"]),
            "event": st.sampled_from(["view", "click"]),
            "impression_id": st.integers(0, 5),
        },
    )
    return st.lists(record, max_size=25)


RECORDS = st.sampled_from(STARTS).flatmap(records_from)


def cut(items: list[Any], seed: int) -> list[list[Any]]:
    """In batches, anyhow."""
    chance, batches = random.Random(seed), [[]]  # type: ignore[var-annotated]
    for item in items:
        if chance.random() < 0.3:
            batches.append([])
        batches[-1].append(item)
    return batches


def assert_agree(
    came: list[Came], phases: list[Phase], changes: list[Any], begin: int = reference.LONG_AGO
) -> None:
    kept = reference.without_duplicates(came, phases)
    for now in reference.interesting_times(came, phases):
        if now >= begin:
            assert state_at(changes, now) == reference.capped(kept, phases, now), f"at {now}"


@settings(max_examples=60, deadline=None)
@given(RECORDS, RULE_SETS, st.integers(0, 1 << 30))
def test_in_order_the_app_agrees_at_every_moment(
    records: list[dict[str, Any]], rules: list[dict[str, Any]], seed: int
) -> None:
    records.sort(key=lambda r: r["log_time"])
    changes, late = run(cut(records, seed), rules)
    assert late == []
    assert_agree([Came(own) for own in records], [Phase(reference.LONG_AGO, rules)], changes)


@settings(max_examples=60, deadline=None)
@given(RECORDS, RULE_SETS, st.integers(0, 1 << 30))
def test_out_of_order_within_the_bound_the_app_agrees_at_every_moment(
    records: list[dict[str, Any]], rules: list[dict[str, Any]], seed: int
) -> None:
    chance = random.Random(seed)
    records.sort(key=lambda r: r["log_time"] + chance.randrange(2 * HOUR))
    changes, late = run(cut(records, seed), rules, out_of_orderness_ms=2 * HOUR)
    assert late == []
    assert_agree([Came(own) for own in records], [Phase(reference.LONG_AGO, rules)], changes)


@settings(max_examples=60, deadline=None)
@given(RECORDS, RULE_SETS, st.integers(0, 1 << 30))
def test_whatever_the_order_the_app_agrees_in_the_end(
    records: list[dict[str, Any]], rules: list[dict[str, Any]], seed: int
) -> None:
    """P2: a view counts from when it comes, however late, and then it is as if it had come in time."""
    records = [{k: v for k, v in own.items() if k != "impression_id"} for own in records]
    changes, _ = run(cut(records, seed), rules)
    newest = max((r["log_time"] for r in records), default=START)
    came, phases = [Came(own) for own in records], [Phase(reference.LONG_AGO, rules)]
    assert_agree(came, phases, changes, newest)


class Happenings:
    """What happens to a job, made up of a seed: records in some order, messages with rules, failures."""

    def __init__(self, seed: int) -> None:
        self._chance = chance = random.Random(seed)
        start, hours = chance.choice(STARTS), chance.choice([6, 48, 144])
        self._lengths = [f"{n}m" for n in (10, 30, 90)] + [f"{hours // 3}h", "lifetime"]
        self._times = [start + chance.randrange(hours * 60) * 60_000 for _ in range(25)]
        records = [self._record() for _ in range(chance.randrange(40))]
        disorder = chance.choice([1, HOUR, hours * HOUR])
        records.sort(key=lambda own: own["log_time"] + chance.randrange(disorder))
        self.records = [{**own, "number": number} for number, own in enumerate(records)]
        self.batches = cut(self.records, seed)
        self.told: list[list[Any]] = [[] for _ in range(len(self.batches) + 1)]
        self._rules = [self._rule(name) for name in ("one", "two")[: chance.randrange(1, 3)]]
        self.told[0].append({"rules": list(self._rules)})
        for _ in range(chance.randrange(6)):
            chance.choice(self.told).append(self._message())
        self.failures = {chance.randrange(50) for _ in range(chance.randrange(3))}
        self.bound = chance.choice([0, 0, HOUR])

    def _record(self) -> dict[str, Any]:
        chance, ad = self._chance, self._chance.choice("ab")
        own = {"user_no": chance.choice([1, "ann"]), "da_id": ad, "campaign_id": "c"}
        own["log_time"] = chance.choice(self._times) + chance.choice([0, 0, 1])
        if chance.random() < 0.2:
            own["event"] = "click"
        if chance.random() < 0.5:
            own["impression_id"] = chance.randrange(12)
        if chance.random() < 0.5:
            own["country"] = chance.choice(["DE", "FR"])
        return own

    def _rule(self, name: str) -> dict[str, Any]:
        chance = self._chance
        rule: dict[str, Any] = {
            "name": name,
            "level": "ad",
            "limit": chance.choice([1, 1, 2, 2, 3]),
        }
        rule["window"] = chance.choice(self._lengths if chance.random() < 0.8 else WINDOWS)
        if chance.random() < 0.3:
            rule["cool_down"] = chance.choice(["5m", "1h", "20h"])
        for key, value in (("level", "campaign"), ("enabled", False), ("event", "click")):
            if chance.random() < 0.1:
                rule[key] = value
        if chance.random() < 0.1:
            rule["where"] = {"country": "DE"}
        return rule

    def _message(self) -> dict[str, Any]:
        chance, name = self._chance, self._chance.choice(["one", "two"])
        message: dict[str, Any] = {"rule": self._rule(name)}
        self._rules.append(message["rule"])
        if chance.random() < 0.4:  # rules that were there before come back, or are left out
            again = chance.sample(self._rules, chance.randrange(min(3, len(self._rules) + 1)))
            alone = list({own["name"]: own for own in again}.values())
            message = chance.choice([{"delete": name}, {"rules": alone}, {"rules": alone}])
        if chance.random() < 0.5:
            message["at"] = chance.choice(self._times)
        return message


@settings(max_examples=int(os.environ.get("MILLPOND_EXAMPLES", "200")), deadline=None)
@given(st.integers(0, 1 << 62))
def test_whatever_happens_the_app_agrees_at_every_moment(seed: int) -> None:
    """P2, P7: late records, duplicates, rules that change at once or at a time, restarts, any batches."""
    happenings = Happenings(seed)
    _came.clear()
    _failures.clear()
    _failures.update(happenings.failures)
    settings = {"pipeline.max-parallelism": 1, "parallelism.default": 1}
    grace_ms = [0, 10 * 60_000, HOUR, 30 * HOUR][seed // 4 % 4]
    lives = TimesToLive(state_ms=400 * DAY if seed % 4 == 0 else None, gone_rule_ms=grace_ms)
    told, bound = happenings.told, happenings.bound
    changes, late = run(happenings.batches, told, bound, Watched, lives=lives, **settings)
    came, phases = what_came(happenings.records, grace_ms)
    assert_agree(came, phases, changes)
    kept = reference.without_duplicates(came, phases)
    for arrival in late[:1]:
        own = came[json.loads(arrival[5])["number"]]
        without = [other for other in kept if other is not own]
        for now in reference.interesting_times([own], phases):
            known = reference.capped(kept, phases, now)
            assert reference.capped(without, phases, now) == known, "it was not too late"


def what_came(records: list[dict[str, Any]], grace_ms: int) -> tuple[list[Came], list[Phase]]:
    """For the reference, from what the function has seen. After a restart it has seen some again."""
    last = {what: place for place, (what, _) in enumerate(_came)}
    came: list[Came] = []
    phases = [Phase(reference.LONG_AGO, [])]  # without grace, which depends on all of them
    waiting: list[tuple[int, Any]] = []

    def put_in_force(since: int, message: Any, after: int | None) -> None:
        rules = list(phases[-1].rules)
        if "rules" in message:
            rules = message["rules"]
        else:
            name = message["delete"] if "delete" in message else message["rule"]["name"]
            rules = [own for own in rules if own["name"] != name]
            rules += [message["rule"]] if "rule" in message else []
        phases.append(Phase(since, rules, after, message.get("delete")))

    def put_what_waits_in_force(clock: int) -> None:
        waiting.sort(key=lambda own: own[0])
        while waiting and waiting[0][0] <= clock:
            put_in_force(*waiting.pop(0), None)

    for place, (what, clock) in enumerate(_came):
        if last[what] != place:
            continue
        clock = max(clock, reference.LONG_AGO)
        if not isinstance(what, tuple):
            came.append(Came(records[what], clock))
            continue
        message = json.loads(what[2])
        put_what_waits_in_force(clock)
        if message.get("at", reference.LONG_AGO) > clock:
            waiting.append((message["at"], message))
        elif clock == reference.LONG_AGO:
            put_in_force(clock, message, None)
        else:
            put_in_force(clock, message, len(came))
    put_what_waits_in_force(reference.NEVER)
    return came, reference.with_grace(phases, grace_ms)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_the_rule_that_counts_without_a_file(parallelism: int) -> None:
    """P1: 5 views in 5 days; the first view ages out, and the pair is released."""
    rules = default_config().rules
    records = [record(42, "ad-17", n * HOUR) for n in range(5)]
    changes, _ = run([records], rules, **{"parallelism.default": parallelism})
    assert changes == [
        ("42", "ad:ad-17", "CAP", START + 4 * HOUR, "default"),
        ("42", "ad:ad-17", "UNCAP", START + 5 * DAY, "default"),
    ]


def test_two_views_of_one_millisecond_are_two() -> None:
    """P3."""
    rules = [{"name": "r", "level": "ad", "limit": 2, "window": "1h"}]
    changes, _ = run([[record(1, "a", 0), record(1, "a", 0)]], rules)
    assert [change[2:4] for change in changes] == [("CAP", START), ("UNCAP", START + HOUR)]


def test_view_that_can_no_longer_count_is_put_aside() -> None:
    rules = [{"name": "r", "level": "ad", "limit": 1, "window": "1h"}]
    changes, late = run([[record(1, "a", 2 * HOUR)], [record(2, "b", 0)]], rules)
    assert [arrival[:3] for arrival in late] == [("2", None, START)]
    assert [change[0] for change in changes] == ["1", "1"]


def test_click_of_an_impression_is_no_duplicate_of_its_view() -> None:
    rules = [{"name": "r", "level": "ad", "limit": 1, "window": "1h", "event": "click"}]
    both = [
        record(1, "a", 0, impression_id="i"),
        record(1, "a", 1, impression_id="i", event="click"),
    ]
    changes, _ = run([both], rules)
    assert [change[2] for change in changes] == ["CAP", "UNCAP"]


def test_views_without_an_impression_are_all_counted() -> None:
    rules = [{"name": "r", "level": "ad", "limit": 5, "window": "1h"}]
    changes, _ = run([[record(1, "a", n, impression_id="") for n in range(5)]], rules)
    assert [change[2] for change in changes] == ["CAP", "UNCAP"]


@pytest.mark.parametrize("out_of_orderness_ms", [0, 6 * HOUR])
def test_view_at_the_moment_of_release_keeps_the_cap(out_of_orderness_ms: int) -> None:
    rules = [{"name": "r", "level": "ad", "limit": 1, "window": "1h", "cool_down": "2h"}]
    views = [record(1, "a", 0), record(1, "a", 2 * HOUR)]
    changes, _ = run([views], rules, out_of_orderness_ms)
    assert [(c[2], c[3] - START) for c in changes] == [("CAP", 0), ("UNCAP", 4 * HOUR)]


def test_rules_see_the_fields_of_plain_records() -> None:
    rules = [
        {"name": "users", "level": "user_no", "limit": 2, "window": "1h"},
        {"name": "some", "level": "ad", "limit": 1, "window": "1h", "where": {"user_no": [1]}},
    ]
    changes, _ = run([[record(1, "a", 0), record(2, "b", 1), record(1, "b", 2)]], rules)
    assert {change[1] for change in changes if change[2] == "CAP"} == {"user_no:1", "ad:a", "ad:b"}


def test_nothing_is_left_of_users_that_went_away() -> None:
    """Whether their views came one by one or all at once."""
    rules = [{"name": "r", "level": "ad", "limit": 3, "window": "5d"}]
    far = [record(1, "a", n * 20 * DAY, impression_id=n) for n in range(4)]
    for batches in ([far], [[own] for own in far]):
        _entries.clear()
        run([*batches, [record(2, "z", 200 * DAY)]], rules, function=Watched)
        assert _entries[-1] == 0


def test_time_to_live_removes_what_was_not_swept() -> None:
    """P4."""
    rules = [{"name": "r", "level": "ad", "limit": 3, "window": "5d"}]
    views = [record(1, ad, 0, impression_id=ad) for ad in "abcdef"]
    later = [record(1, "x", days * DAY) for days in (399, 401)]
    _entries.clear()
    batches = [views, *([own] for own in later), [record(2, "x", 402 * DAY)]]
    run(batches, rules, function=Unswept, lives=TimesToLive(state_ms=400 * DAY))
    assert 12 <= _entries[-2] <= 15, "views and impressions, and the new view"
    assert _entries[-1] <= 2


# --- rules that change -------------------------------------------------------------------------------

FIVE = [record(1, "a", n * 60_000) for n in range(5)]


def after_change(message: Any, limit: int = 3, **rule: Any) -> list[tuple[str, int]]:
    """Five views, a minute each; then a message; then another user's view, later."""
    first = {"name": "r", "level": "ad", "limit": limit, "window": "1h", **rule}
    batches = [FIVE, *([record(2, "z", n * 60_000)] for n in (10, 11, 12))]
    changes, _ = run(batches, [[{"rules": [first]}], [], [message], []])
    return [
        (action, (time - START) // 60_000) for user, _, action, time, _ in changes if user == "1"
    ]


CHANGED = {"name": "r", "level": "ad", "limit": 3, "window": "1h"}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"rule": CHANGED}, [("CAP", 2), ("UNCAP", 62)]),
        ({"rule": {**CHANGED, "limit": 6}}, [("CAP", 2), ("UNCAP", 9)]),
        ({"rule": {**CHANGED, "limit": 1}}, [("CAP", 2), ("UNCAP", 64)]),
        ({"rule": {**CHANGED, "window": "5m"}}, [("CAP", 2), ("UNCAP", 9)]),
        ({"rule": {**CHANGED, "window": "2h"}}, [("CAP", 2), ("UNCAP", 122)]),
        ({"rule": {**CHANGED, "enabled": False}}, [("CAP", 2), ("UNCAP", 9)]),
        ({"rule": {**CHANGED, "event": "click"}}, [("CAP", 2), ("UNCAP", 9)]),
        ({"delete": "r"}, [("CAP", 2), ("UNCAP", 9)]),
        ({"rules": []}, [("CAP", 2), ("UNCAP", 9)]),
        ({"rule": {**CHANGED, "name": "other", "limit": 1}}, [("CAP", 2), ("UNCAP", 62)]),
        ({"rule": {**CHANGED, "limit": 0}}, [("CAP", 2), ("UNCAP", 62)]),
        ({"nonsense": 1}, [("CAP", 2), ("UNCAP", 62)]),
    ],
)
def test_changed_rule_is_applied_to_users_that_are_capped(
    message: Any, expected: list[tuple[str, int]]
) -> None:
    """P7. When the message comes, it is just before minute 10."""
    assert after_change(message) == expected


def test_lower_limit_caps_users_that_were_not() -> None:
    message = {"rule": {**CHANGED, "limit": 4}}
    assert after_change(message, limit=6) == [("CAP", 9), ("UNCAP", 61)]


def test_rule_that_is_switched_on_again_has_counted_meanwhile() -> None:
    off = {"rule": {**CHANGED, "enabled": False}}
    batches = [FIVE[:1], FIVE[1:], *([record(2, "z", n * 60_000)] for n in (10, 11, 12))]
    changes, _ = run(batches, [[{"rules": [CHANGED]}], [], [off], [{"rule": CHANGED}], []])
    own = [
        (action, (time - START) // 60_000) for user, _, action, time, _ in changes if user == "1"
    ]
    assert [action for action, _ in own] == ["CAP", "UNCAP", "CAP", "UNCAP"]
    assert own[-1] == ("UNCAP", 62)


def test_strictest_rule_wins() -> None:
    """A member is released when the last rule lets it go."""
    rules = [
        {"name": "hour", "level": "ad", "limit": 2, "window": "1h"},
        {"name": "day", "level": "ad", "limit": 2, "window": "1d"},
    ]
    changes, _ = run([FIVE[:2]], rules)
    assert [(c[2], c[3] - START, c[4]) for c in changes] == [
        ("CAP", 60_000, "hour"),
        ("UNCAP", DAY, "day"),
    ]


@pytest.mark.parametrize("order", [[0, 1, 2], [0, 2, 1]])
def test_cool_down_does_not_depend_on_the_order_of_views(order: list[int]) -> None:
    """P2: the second view comes in time, or after event time has come to 9 h."""
    rules = [{"name": "r", "level": "ad", "limit": 2, "window": "10h", "cool_down": "12h"}]
    views = [record(1, "a", 0), record(1, "a", HOUR), record(2, "b", 9 * HOUR)]
    changes, _ = run([[views[number]] for number in order], rules)
    (released,) = (change for change in changes if change[2] == "UNCAP")
    assert released[3] == START + 13 * HOUR


def test_late_view_can_matter_for_the_cool_down_alone() -> None:
    rules = [{"name": "r", "level": "ad", "limit": 2, "window": "1h", "cool_down": "12h"}]
    views = [record(1, "a", 0), record(2, "b", 9 * HOUR), record(1, "a", 1)]
    changes, late = run([[own] for own in views], rules)
    assert late == []
    assert [(c[2], c[3] - START) for c in changes] == [
        ("CAP", 9 * HOUR - 1),
        ("UNCAP", 12 * HOUR + 1),
    ]


@pytest.mark.parametrize("batches", [[FIVE], [[own] for own in FIVE]])
def test_message_counts_from_its_time_on_whenever_it_comes(batches: list[Any]) -> None:
    """P2: rules for later are in force from that moment of event time on, however batches are cut."""
    limits = [
        {"rule": {**CHANGED, "limit": limit}, "at": START + minutes * 60_000}
        for limit, minutes in ((2, 1), (9, 3), (5, 30))
    ]
    changes, _ = run(batches, [[{"rules": [CHANGED]}, *reversed(limits)]])
    assert [(c[2], (c[3] - START) // 60_000) for c in changes] == [
        ("CAP", 1),
        ("UNCAP", 3),
        ("CAP", 30),
        ("UNCAP", 60),
    ]
