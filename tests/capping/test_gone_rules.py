"""Rules that vanish and come back: their counts are kept for a grace period of event time (P7)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond.apps.frequency_capping.capping import CapUsers
from millpond.apps.frequency_capping.config import default_config
from millpond.apps.frequency_capping.pipeline import (
    CappingJob,
    ReadRecords,
    event_time,
    time_of_rules,
)
from millpond.apps.frequency_capping.records import RecordFormat
from millpond.apps.frequency_capping.rulebook import read_plan, tell
from millpond.apps.frequency_capping.rules import TimesToLive
from millpond.apps.frequency_capping.rules_source import RulesSource
from millpond.apps.frequency_capping.user_state import RULES
from millpond.common import Encoder
from millpond.common.time import MIN_TIMESTAMP
from millpond.datastream.connectors.base import Source, SplitEnumerator, SplitWork
from millpond.datastream.connectors.collection import ListEnumerator
from millpond.datastream.connectors.file_system import FileSink, RollingPolicy
from millpond.datastream.functions import RuntimeContext
from millpond.driver.planning import plan_job
from millpond.plan.physical import JobPlan
from millpond.testing import direct_environment
from tests.capping.test_counting import DAY, HOUR, START, record, run
from tests.conftest import delivered_lines
from tests.unit.driver.test_recovery import Crash, StandInForSpark

MINUTE = 60_000
ADS = {"name": "ads", "level": "ad", "limit": 3, "window": "1d"}
OTHER = {"name": "other", "level": "ad", "limit": 9, "window": "1d"}


def changes_of(
    batches: list[list[dict[str, Any]]], told: list[list[Any]], grace_ms: int = HOUR
) -> list[tuple[str, int]]:
    """(action, minute) for user 1; messages come with the batch of their number."""
    changes, _ = run(batches, told, lives=TimesToLive(gone_rule_ms=grace_ms))
    return [
        (action, (time_ms - START) // MINUTE)
        for user, _, action, time_ms, _ in changes
        if user == "1"
    ]


def at(minute: int, message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "at": START + minute * MINUTE}


ALL, WITHOUT = {"rules": [ADS, OTHER]}, {"rules": [OTHER]}
VIEWS = [record(1, "a", minute * MINUTE) for minute in (0, 10, 20)]
LATER = [record(2, "z", 3 * DAY)]


def test_rule_that_comes_back_within_the_grace_period_goes_on_as_if_it_never_went() -> None:
    """It was away from minute 5 to 64: the view of minute 10 was counted all the same."""
    told = [[ALL, at(5, WITHOUT), at(64, ALL)]]
    assert changes_of([VIEWS, LATER], told) == [("CAP", 64), ("UNCAP", 24 * 60)]


def test_rule_that_is_away_caps_nothing() -> None:
    told = [[ALL, at(30, WITHOUT), at(60, ALL)]]
    expected = [("CAP", 20), ("UNCAP", 30), ("CAP", 60), ("UNCAP", 24 * 60)]
    assert changes_of([VIEWS, LATER], told) == expected
    assert changes_of([VIEWS, LATER], [[ALL, at(30, WITHOUT)]]) == expected[:2]


@pytest.mark.parametrize(("back_ms", "knows"), [(HOUR - 1, True), (HOUR, False)])
def test_grace_period_ends_at_a_moment_of_event_time(back_ms: int, knows: bool) -> None:
    """At the very moment at which it ends the rule is gone."""
    back = {**ALL, "at": START + 30 * MINUTE + back_ms}
    found = changes_of([VIEWS, LATER], [[ALL, at(30, WITHOUT), back]])
    assert [action for action, _ in found] == ["CAP", "UNCAP"] * (2 if knows else 1)


@pytest.mark.parametrize("batches", [[VIEWS, LATER], [*([own] for own in VIEWS), LATER]])
@pytest.mark.parametrize("grace_ms", [0, HOUR, 10 * HOUR])
def test_outcome_does_not_depend_on_how_batches_are_cut(batches: list[Any], grace_ms: int) -> None:
    """P2"""
    told = [[ALL, at(15, WITHOUT), at(120, ALL)]]
    expected = [] if grace_ms <= HOUR else [("CAP", 120), ("UNCAP", 24 * 60)]
    assert changes_of(batches, told, grace_ms) == expected


def test_rule_deleted_by_its_name_is_gone_at_once_also_if_it_only_went_on_counting() -> None:
    for told in (
        [[ALL, at(30, {"delete": "ads"}), at(40, ALL)]],
        [[ALL, at(30, WITHOUT), at(35, {"delete": "ads"}), at(40, ALL)]],
    ):
        assert changes_of([VIEWS, LATER], told) == [("CAP", 20), ("UNCAP", 30)]


def test_rule_that_comes_back_changed_is_a_changed_rule() -> None:
    lower = {"rules": [{**ADS, "limit": 2}, OTHER]}
    told = [[ALL, at(15, WITHOUT), at(40, lower)]]
    assert changes_of([VIEWS, LATER], told) == [("CAP", 40), ("UNCAP", 24 * 60 + 10)]
    other = {"rules": [{**ADS, "event": "click"}, OTHER]}
    told = [[ALL, at(15, WITHOUT), at(40, other), at(50, ALL)]]
    assert changes_of([VIEWS, LATER], told) == [], "it has counted something else meanwhile"


def test_second_absence_has_a_grace_period_of_its_own() -> None:
    told = [[ALL, at(5, WITHOUT), at(50, ALL), at(55, WITHOUT), at(100, ALL)]]
    found = changes_of([VIEWS, LATER], told)
    assert found == [("CAP", 50), ("UNCAP", 55), ("CAP", 100), ("UNCAP", 24 * 60)]


def test_list_without_the_rule_told_again_does_not_prolong_its_grace_period() -> None:
    told = [[ALL, at(30, WITHOUT), at(80, WITHOUT), at(100, ALL)]]
    assert changes_of([VIEWS, LATER], told) == [("CAP", 20), ("UNCAP", 30)]


def test_impressions_are_remembered_for_a_rule_that_is_away() -> None:
    """Else a duplicate would count after all. Without the rule they are known for an hour only."""
    short = {"rules": [{**OTHER, "window": "1h"}]}
    views = [record(1, "a", n * MINUTE, impression_id=n) for n in (0, 1)]
    again = record(1, "a", 150 * MINUTE, impression_id=0)
    told = [[ALL, at(100, short), at(140, ALL)]]
    assert changes_of([[*views, again], LATER], told) == []


class Noted(CapUsers):
    """Notes which rules have views of user 1 after each of their timers."""

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        changes = super().on_timer(timestamp, ctx)
        if ctx.get_current_key() == "1":
            names = {pair.partition("\x00")[0] for pair, _ in self._views.items()}
            _noted[(timestamp - START) // MINUTE] = names
        return changes


_noted: dict[
    int, set[str]
] = {}  # the direct executor runs in this process, with copies of functions


def test_nothing_is_left_of_a_rule_after_its_grace_period() -> None:
    _noted.clear()
    run([VIEWS, LATER], [[ALL, at(30, WITHOUT)]], 0, Noted, TimesToLive(gone_rule_ms=HOUR))
    assert _noted[30] == {"ads", "other"}
    assert _noted[90] == {"other"}


class Broadcast(dict[str, str]):
    """State as `tell` and `read_plan` use it."""

    put = dict.__setitem__
    remove = dict.__delitem__


def test_state_of_a_version_without_grace_periods_is_read() -> None:
    state = Broadcast()
    tell(state, ALL, START, HOUR)
    old = json.loads(state["current"])
    del old["gone"], old["grace"]
    state["current"] = json.dumps(old)
    assert {own.name: own.gone_until_ms for own in read_plan(state).book.rules.values()} == {
        "ads": None,
        "other": None,
    }
    tell(state, WITHOUT, START + 1, HOUR)
    assert read_plan(state).book.rules["ads"].gone_until_ms == START + 1 + HOUR


def test_rule_that_vanishes_before_event_time_begins_has_nothing_to_keep() -> None:
    state = Broadcast()
    for message in (ALL, WITHOUT):
        tell(state, message, MIN_TIMESTAMP, HOUR)
    assert set(read_plan(state).book.rules) == {"other"}


# --- the real file -----------------------------------------------------------------------------------


class Steps(Source):
    """Lines of views, one batch each; and texts that someone writes into the file of rules before a batch."""

    bounded = False
    endless = True

    def __init__(self, steps: list[Any], file: Path) -> None:
        self._steps, self._file = steps, file

    def create_enumerator(self, parallelism: int, context: RuntimeContext) -> SplitEnumerator:
        return _StepByStep(self._steps, self._file)

    def read(self, arguments: Any) -> Iterator[tuple[Any, int | None]]:
        return ((json.dumps(own), None) for own in arguments)


class _StepByStep(ListEnumerator):
    def __init__(self, steps: list[Any], file: Path) -> None:
        super().__init__(steps)
        self._file = file

    def poll(self, max_records: int) -> list[SplitWork]:
        while self._next < len(self._records):
            step = self._records[self._next]
            self._next += 1
            if isinstance(step, dict):
                return [SplitWork(0, [step])]
            self._file.write_text(step)
        return []

    def ended(self) -> list[bool]:
        return [False]

    def caught_up(self) -> bool:
        return True


def file_job(folder: Path, steps: list[Any]) -> JobPlan:
    """The job as `pipeline.build` makes it, without Redis: `folder/out` has the changes."""
    settings = {"parallelism.default": 1, "pipeline.max-parallelism": 2}
    environment = direct_environment({"millpond.input.stop-at-end": True, **settings})
    source, lives = Steps(steps, folder / "rules.yaml"), TimesToLive()
    job = CappingJob(source, default_config(), None, "", "", "", until_end=True, lives=lives)
    views = (
        environment._source(source, "records", None)
        .uid("records")
        .process(ReadRecords(RecordFormat()))
        .assign_timestamps_and_watermarks(event_time(job))
    )
    told = RulesSource(str(folder / "rules.yaml"), str(folder / "control"), lives, True, 0)
    rules = environment.from_source(told, time_of_rules(), "rules").uid("rules")
    keyed = views.key_by(lambda arrival: arrival[0]).connect(rules.broadcast(RULES))
    changes = keyed.process(CapUsers(None, lives)).uid("cap users").name("cap users")
    shown = changes.map(lambda own: f"{own[2]} {own[1]} {(own[3] - START) // MINUTE}")
    files = FileSink.for_row_format(str(folder / "out"), Encoder.simple_string_encoder())
    files = files.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
    shown.sink_to(files.build())
    graph, config = environment._pending_graph(), environment.get_config()
    return plan_job(graph, environment._configuration, config, "job")


FULL, HALF = json.dumps(ALL), json.dumps(WITHOUT)
# A view every ten minutes: a is capped from minute 20 on, c from minute 70 on.
ADS_SEEN = ["a", "a", "a", "c", "x", "c", "y", "c", "z", "z"]
MINUTES = [record(1, ad, n * 10 * MINUTE) for n, ad in enumerate(ADS_SEEN)]
UNDISTURBED = ["CAP ad:a 20", "CAP ad:c 70"]


def lives_of_a_job(
    folder: Path, steps: list[Any], crash: tuple[int, str] | None = None
) -> list[str]:
    """What it has written, killed once if there is a crash: what survives is its folder, and the file."""
    folder.mkdir()
    (folder / "rules.yaml").write_text(FULL)
    clock = itertools.count(START, 100)
    spark = StandInForSpark(lambda: next(clock))
    if crash is not None:
        with pytest.raises(Crash):
            spark.run(file_job(folder, steps), folder / "jobs", crash)
    spark.run(file_job(folder, steps), folder / "jobs", None)
    return delivered_lines(folder / "out")


@pytest.mark.parametrize("seen", [1, 2, 4])
@pytest.mark.parametrize("begin", [1, 4])
def test_empty_file_for_a_while_changes_nothing(tmp_path: Path, begin: int, seen: int) -> None:
    """The defect: full file, empty file, full file. What was counted before and meanwhile counts."""
    steps = [*MINUTES[:begin], "", *MINUTES[begin : begin + seen], FULL, *MINUTES[begin + seen :]]
    assert lives_of_a_job(tmp_path / "job", steps) == UNDISTURBED


def test_rule_missing_in_the_file_for_a_while_goes_on_as_if_it_never_went(tmp_path: Path) -> None:
    steps = [*MINUTES[:4], HALF, *MINUTES[4:6], FULL, *MINUTES[6:]]
    found = lives_of_a_job(tmp_path / "job", steps)
    assert "CAP ad:c 70" in found, "with the views before and meanwhile"
    assert [own.split()[0] for own in found if "ad:a" in own].count("CAP") == 2, (
        "released for a while"
    )


@pytest.mark.parametrize("point", ["planned", "ran", "completed", "committed"])
@pytest.mark.parametrize("epoch", range(2, 9))
def test_kill_while_a_rule_is_away_changes_nothing(tmp_path: Path, epoch: int, point: str) -> None:
    """E42, P2. When a change of the file is seen, and so when a is released, may differ by a batch; what is
    counted does not."""
    steps = [*MINUTES[:4], HALF, *MINUTES[4:6], FULL, *MINUTES[6:]]
    found = lives_of_a_job(tmp_path / "job", steps, (epoch, point))
    actions = sorted(own.rpartition(" ")[0] for own in found)
    assert actions == ["CAP ad:a", "CAP ad:a", "CAP ad:c", "UNCAP ad:a"]
    assert "CAP ad:a 20" in found and "CAP ad:c 70" in found


@pytest.mark.parametrize("point", ["planned", "committed"])
@pytest.mark.parametrize("epoch", range(2, 6))
def test_kill_while_the_file_is_empty_changes_nothing(
    tmp_path: Path, epoch: int, point: str
) -> None:
    """E42, P2"""
    steps = [*MINUTES[:3], "", *MINUTES[3:6], FULL, *MINUTES[6:]]
    assert lives_of_a_job(tmp_path / "job", steps, (epoch, point)) == UNDISTURBED
