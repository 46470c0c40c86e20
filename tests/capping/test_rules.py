"""Rules as people write them, and what is wrong with them (P7)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from millpond.apps.frequency_capping.config import parse_config
from millpond.apps.frequency_capping.pipeline import RULES_DELAY_MS, CheckMessages, ReadMessages
from millpond.apps.frequency_capping.rulebook import changed_rules
from millpond.apps.frequency_capping.rules import RuleError, TimesToLive, parse_rule
from millpond.apps.frequency_capping.rules_source import RulesSource
from millpond.apps.frequency_capping.windows import WindowError, parse_duration
from millpond.common import WatermarkStrategy
from millpond.testing import MarkedSource, direct_environment

GOOD = {"name": "r", "limit": 1, "window": "5d"}


@pytest.mark.parametrize(
    ("text", "ms"), [("90s", 90_000), ("1d12h", 129_600_000), (" 2 w ", 1_209_600_000), ("5ms", 5)]
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize(
    "text", ["", "5", "d", "5x", "5d!", "-5d", "9" * 5000 + "d", "999999999w", None, 5, "²d", []]
)
def test_what_is_no_duration_is_refused(text: Any) -> None:
    with pytest.raises(WindowError):
        parse_duration(text)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"name": ""}, "needs a name"),
        ({"limit": 0}, "limit must be"),
        ({"limit": True}, "limit must be"),
        ({"limit": "5"}, "limit must be"),
        ({"level": "a:b"}, "level must be"),
        ({"window": {"calendar": "month"}}, "calendar must be day or week"),
        ({"window": {"calendar": "day", "time_zone": "Mars"}}, "no time zone"),
        ({"window": {"calender": "day"}}, "has no calender"),
        ({"window": None}, "is not a window"),
        ({"cool_down": "soon"}, "cool_down: 'soon'"),
        ({"enabled": "yes"}, "enabled must be"),
        ({"where": ["DE"]}, "where must map fields"),
        ({"where": {"country": []}}, "must have a value"),
        ({"where": {"country": None}}, "must have a value"),
        ({"where": {1: "a"}}, "not the name of a field"),
        ({"color": "red"}, "has no color"),
    ],
)
def test_wrong_rule_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(RuleError, match=reason):
        parse_rule({**GOOD, **change})


@pytest.mark.parametrize(
    "message",
    [
        None,
        "text",
        [],
        {},
        {"rules": {}},
        {"rule": []},
        {"rules": [GOOD, GOOD]},
        {"a": 1},
        {"rule": 5},
    ],
)
def test_wrong_message_is_refused(message: Any) -> None:
    with pytest.raises(RuleError):
        changed_rules({}, message)


def test_wrong_messages_are_put_aside_once_and_orders_may_not_come_by_a_topic() -> None:
    sent = [
        json.dumps({"rule": GOOD}).encode(),
        json.dumps({"forget": "x", "user": "1"}).encode(),
        b"[" * 100_000,
        b"\xff",
        json.dumps({"rule": GOOD, "at": "soon"}).encode(),
    ]
    environment = direct_environment({"parallelism.default": 2})
    from millpond.apps.frequency_capping.pipeline import REFUSED

    checked = (
        environment.from_collection(sent)
        .process(ReadMessages())
        .process(CheckMessages(TimesToLive()))
    )
    refused = checked.get_side_output(REFUSED).map(lambda own: ("refused", own[0]))
    found = list(checked.map(lambda m: ("rule", m)).union(refused).execute_and_collect())
    assert [m for kind, m in found if kind == "rule"] == [{"rule": GOOD}]
    assert len([m for kind, m in found if kind == "refused"]) == 4


def test_yaml_means_what_people_mean() -> None:
    text = (
        "rules:\n- {name: a, limit: 5, window: 5d, where: {country: [NO, DE], zip: [010, 12:30:45], "
        "day: 2024-01-01, premium: true}, enabled: false}\n"
    )
    (spec,) = parse_config(text, "x").rules
    assert spec["where"] == {
        "country": ["NO", "DE"],
        "zip": ["010", "12:30:45"],
        "day": "2024-01-01",
        "premium": True,
    }
    assert (spec["limit"], spec["enabled"]) == (5, False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rules:\n- name: a\n  limit: 0\n  window: 5d\n", "x, line 3: limit"),
        (
            "rules:\n- {name: a, limit: 1, window: 5d}\n- {name: a, limit: 1, window: 5d}",
            "line 3: .*two",
        ),
        ("rule: []", "line 1: 'rule' is unknown"),
        ("rules: 5", "rules must be a list"),
        ("- a", "must contain `rules:`"),
        ("rules: [", "line 1"),
        ("rules:\n- " + "[" * 3000, "x"),
        ("rules:\n- name: !!binary aGk=\n  limit: 1\n  window: 5d", "x"),
        (
            "fields: {ad: a, user: a}\nrules: []",
            "line 1: fields: one field cannot stand for two things",
        ),
        ("fields: {adv: a}\nrules: []", "'adv' is unknown"),
        ("filter: {a: {}}\nrules: []", "line 1: filter"),
        ("max_ahead: soon\nrules: []", "line 1: 'soon'"),
        ("rules:\n- {name: a, limit: " + "9" * 5000 + ", window: 5d}", "x, line 2: limit"),
    ],
)
def test_wrong_file_is_refused_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(RuleError, match=reason):
        parse_config(text, "x")


def test_without_rules_there_is_the_one_that_counts_without_a_file() -> None:
    assert parse_config("", "x").rules[0]["limit"] == 5


def test_message_counts_from_when_it_was_sent_unless_it_says_from_when() -> None:
    """P2: so that both topics can be read again."""
    environment = direct_environment()
    sent = [
        (json.dumps({"rule": GOOD}).encode(), 1000),
        (json.dumps({"rule": GOOD, "at": 7}).encode(), 1000),
        (json.dumps({"rule": GOOD}).encode(), -1),
    ]
    source = MarkedSource(sent, with_timestamps=True)
    stream = environment.from_source(source, WatermarkStrategy.no_watermarks(), "messages")
    found = list(
        stream.process(ReadMessages()).process(CheckMessages(TimesToLive())).execute_and_collect()
    )
    assert found == [
        {"rule": GOOD, "at": 1000 + RULES_DELAY_MS},
        {"rule": GOOD, "at": 7},
        {"rule": GOOD},
    ]


def test_rule_that_redis_would_forget_is_refused_whenever_it_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """P7: by a topic, or in the file while the job runs."""
    lives, longer = TimesToLive(parse_duration("10d")), {**GOOD, "cool_down": "10d"}
    with pytest.raises(RuleError, match="at least twice as long"):
        TimesToLive(state_ms=parse_duration("29d")).check([parse_rule(longer)])
    TimesToLive(state_ms=parse_duration("30d")).check([parse_rule(longer)])
    environment = direct_environment()
    sent = [{"rule": GOOD}, {"rule": longer}, {"rules": [{**GOOD, "window": "lifetime"}]}]
    checked = environment.from_collection(sent).process(CheckMessages(lives))
    assert list(checked.execute_and_collect()) == sent[:1]
    rules = tmp_path / "rules.yaml"
    rules.write_text(json.dumps({"rules": [GOOD]}))
    source = RulesSource(str(rules), str(tmp_path), lives, look_every_ms=0)
    enumerator = source.create_enumerator(1, cast(Any, None))
    assert len(enumerator.poll(10)) == 1
    rules.write_text(json.dumps({"rules": [longer]}))
    assert enumerator.poll(10) == enumerator.poll(10) == []
    assert caplog.text.count("'r' can cap for longer than --redis-ttl") == 1
