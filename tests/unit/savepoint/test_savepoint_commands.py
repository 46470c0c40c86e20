"""`millpond stop` and `millpond savepoint show` (E45, E48)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millpond.cli import savepoints
from millpond.cli.main import main
from millpond.common import Types
from millpond.datastream import DataStream
from millpond.datastream.state import ValueStateDescriptor
from millpond.savepoint import Savepoint
from tests.unit.engine.test_column_functions import Count
from tests.unit.savepoint.test_savepoint import CUT_RECORDS, remember, run_and_save


@pytest.mark.parametrize(
    ("arguments", "directory", "drain"),
    [
        (["--savepoint", "--drain"], None, True),
        (["--drain", "--savepoint"], None, True),
        (["--savepoint", "/a"], "/a", False),
        (["--savepoint", "/a", "--drain"], "/a", True),
        ([], None, False),
    ],
)
def test_folder_for_the_savepoint_of_a_job_to_stop_may_be_left_out(
    arguments: list[str], directory: str | None, drain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def take(_: Any, *order: Any, **flags: Any) -> int:
        asked.append((order, flags))
        return 0

    monkeypatch.setattr(savepoints, "_take", take)
    assert main(["stop", "job", *arguments]) == 0
    assert asked == [(("job", directory), {"stop": True, "drain": drain})]


def show(path: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["savepoint", "show", path]) == 0
    return capsys.readouterr().out


def test_show_tells_of_pickles_wherever_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, path = run_and_save(remember, CUT_RECORDS, tmp_path / "timers")
    assert "(timers)" in show(path, capsys)
    assert "contains Python pickles (namespace)" in show(path, capsys).split("(timers)")[1]

    def columns(stream: DataStream) -> DataStream:
        return stream.key_by(lambda r: r[0]).process_columns(Count()).uid("columns")

    _, path = run_and_save(columns, CUT_RECORDS, tmp_path / "columns")
    assert "contains Python pickles (content)" in show(path, capsys)
    plain = ValueStateDescriptor("count", Types.INT())
    made = Savepoint.new().with_state("x", plain, {"a": 1}).write(tmp_path / "made")
    assert "contains Python pickles" not in show(made, capsys)
