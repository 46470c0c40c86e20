"""Which state backend a job has, and what its settings do (E34)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy
import pytest

from millpond.common import RestartStrategies, Time, Types, WatermarkStrategy
from millpond.datastream import DataStream, KeyedProcessFunction, RuntimeContext
from millpond.datastream.state import MapStateDescriptor
from millpond.datastream.state_backend import BackendContext
from millpond.datastream.window import SlidingEventTimeWindows
from millpond.errors import MillpondError, ProgramError, SetupError, StateLostError
from millpond.state import change_log as changelog
from millpond.state.backends import OpenBackend, make_backend
from millpond.state.change_log import MemoryLogStore
from millpond.state.hash.backend import MemoryStateBackend
from millpond.state.ordered.rocksdb import RocksDBStateBackend
from millpond.state.shard_state import ShardState
from millpond.testing import CUT, FAIL, MarkedSource, direct_environment
from tests.unit.savepoint.test_savepoint import run_to_the_end

OWN = "tests.sqlite_backend.SqliteBackend"


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_map_state(
            MapStateDescriptor("seen", Types.STRING(), Types.INT())
        )

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.seen.put(value[1], (self.seen.get(value[1]) or 0) + 1)
        yield value[0], sorted(self.seen.items())


def count(stream: DataStream) -> DataStream:
    return stream.key_by(lambda record: record[0]).process(Count()).uid("count")


RECORDS = [("ann", "a", 1), ("bob", "a", 2), ("ann", "b", 3), CUT, ("ann", "a", 4), ("bob", "c", 5)]
COUNTED = [
    ("ann", [("a", 1)]),
    ("ann", [("a", 1), ("b", 1)]),
    ("ann", [("a", 2), ("b", 1)]),
    ("bob", [("a", 1)]),
    ("bob", [("a", 1), ("c", 1)]),
]


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb", "memory", OWN])
def test_results_are_the_same_with_every_backend(backend: str) -> None:
    assert sorted(run_to_the_end(count, RECORDS, **{"state.backend.type": backend})) == COUNTED


@pytest.mark.parametrize(
    ("setting", "value", "named"),
    [
        ("state.backend.type", "rocks", "hashmap, rocksdb, memory"),
        ("state.backend.type", "no.such.Backend", "cannot be imported"),
        ("state.backend.type", "tests.sqlite_backend.SqliteStore", "extends"),
        ("state.backend.rocksdb.block.cache-size", "much", "such as 64mb"),
        ("state.backend.rocksdb.compression", "rar", "none, snappy, lz4, zstd"),
        ("state.backend.rocksdb.compaction.style", "none", "level, universal"),
        ("state.backend.rocksdb.compaction.style", "fifo", "level, universal"),
        ("state.backend.rocksdb.use-bloom-filter", "perhaps", "true or false"),
        ("state.backend.rocksdb.options-factory", "no.such.factory", "cannot be imported"),
    ],
)
def test_wrong_settings_are_refused_before_the_job_starts(
    setting: str, value: str, named: str
) -> None:
    settings = {"state.backend.type": "rocksdb", setting: value}
    with pytest.raises(ProgramError, match=named) as refusal:
        run_to_the_end(count, RECORDS, **settings)
    assert setting in str(refusal.value)


def test_rocksdb_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(SetupError, match=r"pip install 'millpond\[rocksdb\]'"):
        run_to_the_end(count, RECORDS, **{"state.backend.type": "rocksdb"})


def small_blocks(options: Any, table: Any) -> None:
    """An options factory of a user."""
    table.set_block_size(1 << 10)
    options.set_num_levels(3)


@pytest.mark.parametrize("compression", ["none", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("style", ["level", "universal"])
def test_rocksdb_takes_its_settings(tmp_path: Path, compression: str, style: str) -> None:
    backend = make_backend(RocksDBStateBackend)
    options = {
        "state.backend.rocksdb.compression": compression,
        "state.backend.rocksdb.compaction.style": style,
        "state.backend.rocksdb.block.cache-size": "2 MB",
        "state.backend.rocksdb.block.blocksize": "8kb",
        "state.backend.rocksdb.writebuffer.size": "1mb",
        "state.backend.rocksdb.writebuffer.count": "2",
        "state.backend.rocksdb.thread.num": "1",
        "state.backend.rocksdb.use-bloom-filter": "false",
        "state.backend.rocksdb.options-factory": f"{__name__}.small_blocks",
    }
    backend.open(BackendContext(tmp_path / "db", options))
    store = backend._store
    store.write([(b"a", b"b" * 1000)], [])
    assert store.get(b"a") == b"b" * 1000
    backend.close()
    written = "".join(path.read_text() for path in (tmp_path / "db").glob("OPTIONS-*"))
    expected = {
        "compression": {"none": "kNoCompression", "snappy": "kSnappyCompression",
                        "lz4": "kLZ4Compression", "zstd": "kZSTD"}[compression],
        "compaction_style": f"kCompactionStyle{style.capitalize()}",
        "write_buffer_size": str(1 << 20),
        "max_write_buffer_number": "2",
        "max_background_jobs": "1",
        "block_size": str(1 << 10),
        "num_levels": "3",
        "filter_policy": "nullptr",
    }  # fmt: skip
    for name, value in expected.items():
        assert f"  {name}={value}\n" in written, name


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb", "memory"])
def test_state_in_memory_only_is_lost_with_its_slot_and_the_job_says_so(
    backend: str, tmp_path: Path
) -> None:
    environment = direct_environment({"state.backend.type": backend})
    environment.get_config().set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 0))
    source = MarkedSource([*RECORDS[:3], CUT, FAIL, *RECORDS[4:]], marks_folder=str(tmp_path))
    results = count(environment.from_source(source, WatermarkStrategy.no_watermarks(), "records"))
    if backend != "memory":
        assert sorted(results.execute_and_collect()) == COUNTED
    else:
        with pytest.raises(StateLostError, match=r"state\.backend\.type=memory"):
            list(results.execute_and_collect())


def test_log_of_a_job_that_kept_none_is_not_taken_for_an_empty_state() -> None:
    """The same job, started again with a backend that has a log."""
    store = MemoryLogStore()
    backend = OpenBackend({"state.backend.type": "memory"}).backend
    assert isinstance(backend, MemoryStateBackend)
    state = ShardState(0)
    state.event_timers.register(1, "key")
    changelog.append(lambda _: store, state, backend.keeps_log)
    assert not store._rows
    with pytest.raises(StateLostError, match="shard 7"):
        changelog.load(lambda _: store, ShardState(7))


def test_folder_of_a_slot_that_was_killed_is_used_anew(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "left behind").touch()
    opened = OpenBackend({"state.backend.type": "rocksdb"}, str(folder))
    assert not (folder / "left behind").exists()
    assert folder.stat().st_mode & 0o077 == 0
    opened.close()
    assert not folder.exists()


def test_backend_that_cannot_open_its_store_says_where(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MillpondError, match=str(tmp_path / "file" / "state")):
        OpenBackend({"state.backend.type": "rocksdb"}, str(tmp_path / "file" / "state"))


@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
@pytest.mark.parametrize("size_s", [60, 600], ids=["tumbling", "sliding"])
def test_windows_come_in_the_same_order_however_batches_are_cut(backend: str, size_s: int) -> None:
    def windowed(stream: DataStream) -> DataStream:
        keyed = stream.map(lambda record: (record[0], 1)).key_by(lambda pair: pair[0])
        window = SlidingEventTimeWindows.of(Time.seconds(size_s), Time.seconds(60))
        return keyed.window(window).sum(1)

    records = [(key, "", number) for number, key in enumerate("bacadbce")]
    cut = [item for record in records for item in (record, CUT)]
    settings = {"state.backend.type": backend, "parallelism.default": 1}
    settings["pipeline.max-parallelism"] = 1
    assert run_to_the_end(windowed, records, **settings) == run_to_the_end(
        windowed, cut, **settings
    )


class SetOddTimers(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        for time_ms in (1000, numpy.int64(50)):
            ctx.timer_service().register_event_time_timer(time_ms)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield timestamp


@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_timers_of_numpy_integers_are_timers(backend: str) -> None:
    def timed(stream: DataStream) -> DataStream:
        return stream.key_by(lambda record: record[0]).process(SetOddTimers())

    settings = {"state.backend.type": backend}
    assert run_to_the_end(timed, [("a", "", 1), CUT, ("a", "", 2)], **settings) == [50, 1000]
