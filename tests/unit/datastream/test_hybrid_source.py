"""Sources one after the other (E13)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millpond.common import Duration, WatermarkStrategy
from millpond.datastream.connectors.file_system import FileSource, StreamFormat
from millpond.datastream.connectors.hybrid_source import HybridSource
from millpond.datastream.stream_graph import SinkKind
from millpond.driver.planning import plan_job
from millpond.errors import ProgramError
from millpond.plan.physical import JobPlan
from millpond.testing import CUT, MarkedSource, direct_environment
from tests.unit.driver.test_recovery import Crash, StandInForSpark


def files(folder: Path, **lines: str) -> FileSource:
    folder.mkdir(exist_ok=True)
    for name, text in lines.items():
        (folder / name).write_text("".join(f"{letter}\n" for letter in text))
    return FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(folder)).build()


def hybrid(folder: Path) -> HybridSource:
    past = files(folder / "past", one="ab", two="c")
    builder = HybridSource.builder(past).add_source(MarkedSource(["d", CUT, "e"]))
    return builder.add_source(files(folder / "more", three="f")).build()


@pytest.mark.parametrize("batch", [1, 2, 100])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_sources_are_read_one_after_the_other(tmp_path: Path, batch: int, parallelism: int) -> None:
    settings = {"millpond.batch.max-records": batch, "parallelism.default": parallelism}
    environment = direct_environment(settings)
    stream = environment.from_source(hybrid(tmp_path), WatermarkStrategy.no_watermarks(), "hybrid")
    found = list(stream.execute_and_collect())
    assert sorted(found[:3]) == ["a", "b", "c"]
    assert found[3:] == ["d", "e", "f"]


@pytest.mark.parametrize("epoch", range(5))
@pytest.mark.parametrize("point", ["planned", "ran", "completed", "committed"])
def test_crash_changes_nothing(
    tmp_path: Path, epoch: int, point: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def plan() -> JobPlan:
        environment = direct_environment({"millpond.batch.max-records": 2})
        strategy = WatermarkStrategy.no_watermarks()
        stream = environment.from_source(hybrid(tmp_path), strategy, "hybrid").uid("hybrid")
        stream._sink("out", SinkKind.PRINT, None)
        graph, config = environment._pending_graph(), environment.get_config()
        return plan_job(graph, environment._configuration, config, None)

    spark = StandInForSpark()
    with pytest.raises(Crash):
        spark.run(plan(), tmp_path / "jobs", (epoch, point))
    before = capsys.readouterr().out.split()
    spark.run(plan(), tmp_path / "jobs", None)
    after = capsys.readouterr().out.split()
    assert sorted(set(before + after)) == list("abcdef")
    assert len(after) == len(set(after))


@pytest.mark.parametrize("stops_at_end", [False, True])
def test_file_that_comes_to_the_past_later_is_not_read(tmp_path: Path, stops_at_end: bool) -> None:
    """E13: what is live keeps its splits, and nothing of the past holds event time."""
    started: list[Any] = []

    def enumerator(position: Any = None) -> Any:
        live = (
            FileSource.for_record_stream_format(
                StreamFormat.text_line_format(), str(tmp_path / "live")
            )
            .monitor_continuously(Duration.of_millis(10))
            .build()
        )
        past = FileSource.for_record_stream_format(
            StreamFormat.text_line_format(), str(tmp_path / "past")
        ).build()
        source = HybridSource.builder(past).add_source(live).build()
        made: Any = source.create_enumerator(1, None)  # type: ignore[arg-type]
        made.stops_at_end = stops_at_end
        if position is not None:
            made.restore(position)
        made.start()
        started.append(source)
        return made

    files(tmp_path / "past", one="a", two="b")
    files(tmp_path / "live", now="c")
    first = enumerator()
    assert [work.split for work in first.poll(100)] == [0, 1]
    assert [work.split for work in first.poll(100)] == [2]
    files(tmp_path / "past", a_third="x", one="abc")
    files(tmp_path / "live", then="d")
    again = enumerator(first.position())
    assert again.split_count() == 4, "two of the past, two that are live"
    assert again.ended()[:2] == [True, True]
    works = again.poll(100)
    assert [work.split for work in works] == [3]
    found = [value for work in works for value, _ in started[1].read(work.arguments)]
    assert found == ["d"]


def test_only_the_last_source_may_be_endless(tmp_path: Path) -> None:
    endless: Any = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(tmp_path)
    ).monitor_continuously(Duration.of_millis(10))
    bounded = MarkedSource(["a"])
    assert HybridSource.builder(bounded).add_source(endless.build()).build().endless
    with pytest.raises(ProgramError, match="FileSource never ends"):
        HybridSource.builder(endless.build()).add_source(bounded).build()
