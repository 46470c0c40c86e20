"""Orders to a job that does not run: nothing new is read, and nothing is lost."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from millpond.apps.frequency_capping.answers import AnswerSink
from millpond.apps.frequency_capping.control import ControlFolder
from millpond.apps.frequency_capping.erase import erase_letters
from millpond.apps.frequency_capping.only_orders import OnlyOrders
from millpond.apps.frequency_capping.pipeline import dead_letter, late_letter, refused_letter
from millpond.common import WatermarkStrategy
from millpond.datastream.connectors.base import Epoch, Source
from millpond.datastream.stream_graph import SinkKind
from millpond.driver.planning import plan_job
from millpond.plan.physical import JobPlan
from millpond.testing import CUT, MarkedSource, direct_environment
from tests.unit.driver.test_recovery import Crash, StandInForSpark

RECORDS = ["a", "b", CUT, "c"]


def plan(source: Source, stops: bool) -> JobPlan:
    settings = {"millpond.input.stop-at-end": stops, "millpond.input.advance-at-end": False}
    environment = direct_environment(settings)
    stream = environment.from_source(source, WatermarkStrategy.no_watermarks(), "records")
    stream.uid("records")._sink("out", SinkKind.PRINT, None)
    graph, config = environment._pending_graph(), environment.get_config()
    return plan_job(graph, environment._configuration, config, None)


def test_a_batch_that_was_planned_before_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spark, source = StandInForSpark(), MarkedSource(RECORDS)
    with pytest.raises(Crash):
        spark.run(plan(source, False), tmp_path, (0, "planned"))
    spark.run(plan(OnlyOrders(source), True), tmp_path, None, keep=True)
    assert capsys.readouterr().out.split() == ["a", "b"]
    spark.run(plan(source, False), tmp_path, None)
    assert capsys.readouterr().out.split() == ["c"]


def test_orders_that_are_not_right_are_not_taken(tmp_path: Path) -> None:
    control = ControlFolder(tmp_path)
    own = control.give("forget", user="1")
    for number, text in enumerate(["{", "[]", '{"forget": "x"}', '{"explain": "x", "user": 5}']):
        (control.orders / f"9{number}-x.json").write_text(text)
    ((_, text),) = control.new_orders("")
    assert json.loads(text) == {"forget": own, "user": "1"}
    assert control.answers_to(own) is None
    sink, epoch = AnswerSink(str(control.answers)), Epoch(0, "job", "sink")
    sink.commit(epoch, [[json.dumps({"done": own})], [json.dumps({"id": own, "a": 1})]])
    assert control.answers_to(own) == [{"id": own, "a": 1}]
    assert control.new_orders("") == []
    assert [path for path in tmp_path.rglob("*") if own in path.name] == [], "nothing is left"


def test_answers_that_nobody_takes_do_not_stay(tmp_path: Path) -> None:
    """P7: they tell what a user has seen."""
    control, sink = ControlFolder(tmp_path), AnswerSink(str(tmp_path / "answers"))
    epoch = Epoch(0, "job", "sink")
    for user in "ab":
        texts = [json.dumps({"id": user, "user": user}), json.dumps({"done": user})]
        sink.commit(epoch, [texts])
    control.erase("a")
    assert [path.name for path in control.answers.iterdir()] == ["b.json"]
    os.utime(control.answers / "b.json", (0, 0))
    sink.commit(epoch, [[json.dumps({"done": "c"})]])
    assert [path.name for path in control.answers.iterdir()] == ["c.json"]


def test_forgotten_user_has_no_dead_letters(tmp_path: Path) -> None:
    """P7: whether the record can be read or not; others keep theirs."""
    view = {"user_no": 42, "da_id": "a", "log_time": 5}
    about = [
        late_letter(("42", None, 5, "view", "a", None)),
        dead_letter(("no ad", json.dumps({"user_no": 42}).encode())),
        dead_letter(("no ad", json.dumps({"user_no": "42"}).encode())),
        dead_letter(("not JSON", b'{"user_no": 42, "da')),
        dead_letter(("not UTF-8", b'{"user_no":"42", "da_id": "\xff"}')),
    ]
    others = [
        late_letter(("4", None, 5, "view", "42", None)),
        dead_letter(("no ad", json.dumps({"user_no": 421, "x": 42}).encode())),
        dead_letter(("not JSON", b'{"user_no": 421, "da_id": 42')),
        dead_letter(("not JSON", b'{"user_no": 42.5, "da')),
        dead_letter(("not an object", b"[42]")),
        refused_letter(("why", {"rule": {"name": "42"}})),
        dead_letter(("no ad", json.dumps({**view, "user_no": 7, "log_time": 42}).encode())),
    ]
    (tmp_path / "dead-1.jsonl").write_text("".join(f"{own}\n" for own in [*about, *others]))
    (tmp_path / "dead-2.jsonl").write_text(about[0] + "\n")
    (tmp_path / ".dead-3.jsonl").write_text("not complete")
    assert erase_letters(tmp_path, "42", "user_no") == len(about) + 1
    assert (tmp_path / "dead-1.jsonl").read_text().splitlines() == others
    assert sorted(path.name for path in tmp_path.iterdir()) == [".dead-3.jsonl", "dead-1.jsonl"]
    assert erase_letters(tmp_path / "none", "42", "user_no") == 0
