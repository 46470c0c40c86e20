"""A state that key groups have in different forms is read, copied and restored whole (E48, C40)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pytest

from millpond.common import Types
from millpond.datastream import DataStream, RuntimeContext
from millpond.datastream.state import ListStateDescriptor, ValueStateDescriptor
from millpond.savepoint import Savepoint
from millpond.savepoint.manifest import Manifest, OperatorEntry, describe_file
from millpond.savepoint.reader import SavepointReader
from millpond.savepoint.writer import StateFile
from millpond.state.shard_state import ShardState
from millpond.state.types.schemas import PICKLE
from millpond.testing import CUT
from tests.unit.savepoint.test_savepoint import go_on, run_and_save
from tests.unit.savepoint.test_state_processor import by_key
from tests.unit.state.test_evolution import Keep

RECORDS = [("a", 0, 0), ("b", 0, 0), CUT, ("b", 0, 1), CUT, ("a", 0, 2), ("b", 0, 2)]


class Late(Keep):
    """Declares its state with the first record: key groups without records keep it as it was."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._context = runtime_context

    def process_element(self, value: Any, ctx: Any) -> Any:
        Keep.open(self, self._context)
        yield from Keep.process_element(self, value, ctx)


def with_type(type_info: Any, first: Any = None) -> Any:
    def build(stream: DataStream) -> DataStream:
        late = Late(ValueStateDescriptor("state", type_info), first)
        return stream.key_by(lambda r: r[0]).process(late).uid("keep")

    return build


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Of a state that is double for key b, and still int for key a, which belongs to another subtask."""
    _, path = run_and_save(with_type(Types.INT(), 7), RECORDS, tmp_path / "first", batches=0)
    settings = {"execution.state-recovery.path": path, "parallelism.default": 2}
    _, path = run_and_save(
        with_type(Types.DOUBLE()), RECORDS, tmp_path / "second", batches=0, **settings
    )
    (operator,) = SavepointReader(path).manifest.operators
    assert [state.name for state in operator.states] == ["state", "state"]
    return path


def test_rows_of_all_forms_are_read(path: str) -> None:
    savepoint = Savepoint.load(path)
    assert savepoint.states("keep") == ["state"]
    assert by_key(savepoint.rows("keep", "state")) == {"a": [7], "b": [7.0]}
    table = savepoint.arrow("keep", "state")
    assert table.schema.field("value").type == pyarrow.float64()
    assert sorted(table.column("key").to_pylist()) == ["a", "b"]
    assert sorted(savepoint.pandas("keep", "state")["key"]) == ["a", "b"]


def test_all_forms_are_copied(path: str, tmp_path: Path) -> None:
    copied = Savepoint.load(path).renamed("keep", "kept").renamed("kept", "keep")
    written = copied.write(tmp_path / "copied")
    assert by_key(Savepoint.load(written).rows("keep", "state")) == {"a": [7], "b": [7.0]}
    assert go_on(with_type(Types.DOUBLE()), RECORDS, written) == [7.0, 7.0]


def test_lists_of_subtasks_in_different_forms_are_dealt_out_together(tmp_path: Path) -> None:
    """E31: also if one subtask has not asked for its list since the program changed."""
    file = StateFile(
        tmp_path,
        "list.parquet",
        "_operator.list",
        {"key": PICKLE, "position": "long", "value": "int"},
    )
    file.add(0, "list", {"key": [None] * 2, "position": [0, 1], "value": [1, 2]})
    file.types = {"value": "int"}
    other = StateFile(
        tmp_path,
        "other.parquet",
        "_operator.list",
        {"key": PICKLE, "position": "long", "value": "double"},
    )
    other.add(1, "list", {"key": [None], "position": [0], "value": [3.5]})
    other.types = {"value": "double"}
    operator = OperatorEntry("x", "x", "", "", False, 2, 128, [file.close(), other.close()])
    (tmp_path / "job.blob").write_bytes(b"")
    job_file = describe_file(tmp_path, "job.blob")
    Manifest("id", 0, "", "", "", 0, 2, False, [operator], [], job_file).write(tmp_path)
    content = SavepointReader(tmp_path).subtask_content("x", 0, 1)
    assert content is not None
    state = ShardState(0)
    state.apply(content)
    table = state.state(ListStateDescriptor("list", Types.DOUBLE()), "_operator.")
    assert table.data[None] == [1.0, 2.0, 3.5]
