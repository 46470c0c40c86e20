"""Orders to a job that does not run: nothing new is read, and nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millpond.apps.frequency_capping.control import ControlFolder
from millpond.apps.frequency_capping.only_orders import OnlyOrders
from millpond.common import WatermarkStrategy
from millpond.datastream.connectors.base import Source
from millpond.plan.graph import SinkKind
from millpond.plan.physical import JobPlan
from millpond.runtime.jobs import plan_job
from millpond.testing import CUT, MarkedSource, direct_environment
from tests.unit.test_recovery import Crash, StandInForSpark

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
    control.answers.mkdir()
    (control.answers / "one").write_text(json.dumps({"done": own}) + "\n")
    assert control.answers_to(own) == []
    control.forget(own)
    assert control.new_orders("") == []
