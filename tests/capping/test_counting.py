"""The app agrees with a plain reference on random histories, at every moment (P1-P3, P7)."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.apps.frequency_capping.capping import CAP, LATE, RULES, CapUsers
from millpond.apps.frequency_capping.config import default_config
from millpond.apps.frequency_capping.pipeline import (
    CappingJob,
    ReadRecords,
    event_time,
    time_of_rules,
)
from millpond.apps.frequency_capping.records import RecordFormat
from millpond.testing import CUT, MarkedSource, direct_environment
from tests.capping import reference

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
    {"calendar": "week", "time_zone": "Europe/Berlin"},
]


class Counted(CapUsers):
    """Notes how many entries user 1 has after each timer."""

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        changes = super().on_timer(timestamp, ctx)
        if ctx.get_current_key() == "1":
            states = (self._agenda, self._views, self._seen, self._capped, self._members)
            _entries.append(sum(len(list(state.keys())) for state in states))
        return changes


_entries: list[int] = []  # the direct executor runs in this process, with copies of functions


def run(
    batches: list[list[dict[str, Any]]],
    rules: list[dict[str, Any]] | list[list[Any]],
    out_of_orderness_ms: int = 0,
    function: type[CapUsers] = CapUsers,
    **settings: Any,
) -> tuple[list[Any], list[Any]]:
    """(changes, late records) of a job that reads these batches. Rules: those from the start on, or the
    messages that come with each batch."""
    environment = direct_environment(settings)
    lines = [item for batch in batches for item in (*map(json.dumps, batch), CUT)]
    first_rules = rules and isinstance(rules[0], dict)
    messages = [[{"rules": rules}]] if first_rules else rules
    told = [item for batch in messages for item in (*batch, CUT)]  # type: ignore[misc]
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
        .process(function())
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
RECORD = st.fixed_dictionaries(
    {
        "user_no": st.sampled_from([1, "1", "ann"]),
        "da_id": st.sampled_from(["a", "b"]),
        "log_time": st.one_of(
            st.integers(0, 20), st.integers(0, 6 * 24).map(lambda h: h * HOUR)
        ).map(lambda t: START + t),
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
RECORDS = st.lists(RECORD, max_size=25)


def cut(items: list[Any], seed: int) -> list[list[Any]]:
    """In batches, anyhow."""
    chance, batches = random.Random(seed), [[]]  # type: ignore[var-annotated]
    for item in items:
        if chance.random() < 0.3:
            batches.append([])
        batches[-1].append(item)
    return batches


def assert_agree(records: list[Any], rules: list[Any], changes: list[Any]) -> None:
    for now in reference.interesting_times(records, rules):
        assert state_at(changes, now) == reference.capped_at(records, rules, now), (
            f"at {now - START}"
        )


@settings(max_examples=150, deadline=None)
@given(RECORDS, RULE_SETS, st.integers(0, 1 << 30))
def test_in_order_the_app_agrees_at_every_moment(
    records: list[dict[str, Any]], rules: list[dict[str, Any]], seed: int
) -> None:
    records.sort(key=lambda r: r["log_time"])
    changes, late = run(cut(records, seed), rules)
    assert late == []
    assert_agree(records, rules, changes)


@settings(max_examples=100, deadline=None)
@given(RECORDS, RULE_SETS, st.integers(0, 1 << 30))
def test_out_of_order_within_the_bound_the_app_agrees_at_every_moment(
    records: list[dict[str, Any]], rules: list[dict[str, Any]], seed: int
) -> None:
    chance = random.Random(seed)
    records.sort(key=lambda r: r["log_time"] + chance.randrange(2 * HOUR))
    changes, late = run(cut(records, seed), rules, out_of_orderness_ms=2 * HOUR)
    assert late == []
    assert_agree(records, rules, changes)


@settings(max_examples=100, deadline=None)
@given(RECORDS, RULE_SETS, st.integers(0, 1 << 30))
def test_whatever_the_order_the_app_agrees_in_the_end(
    records: list[dict[str, Any]], rules: list[dict[str, Any]], seed: int
) -> None:
    """Late views count as long as they would count now. (A cool-down begins when the cap is seen.)"""
    rules = [{k: v for k, v in rule.items() if k != "cool_down"} for rule in rules]
    changes, _ = run(cut(records, seed), rules)
    newest = max((r["log_time"] for r in records), default=START)
    for now in reference.interesting_times(records, rules):
        if now >= newest:
            found = state_at(changes, now)
            assert found == reference.capped_at(records, rules, now), f"at {now - START}"


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
    assert [(c[2], c[3] - START) for c in changes] == [("CAP", 0), ("UNCAP", 3 * HOUR)]


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
        run([*batches, [record(2, "z", 200 * DAY)]], rules, function=Counted)
        assert _entries[-1] == 0


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
