"""Parquet and CSV files: read as columns, range by range, and written by many records at a time (E9)."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import cloudpickle
import numpy
import pyarrow
import pytest
from pyarrow import parquet

from millpond.common import Configuration, Duration, Instant, Row, Types, WatermarkStrategy
from millpond.core.record_columns import as_list
from millpond.datastream.connectors.file_system import (
    BulkFormat,
    FileSink,
    FileSource,
    RollingPolicy,
)
from millpond.datastream.formats.avro import AvroBulkWriters, AvroInputFormat, AvroSchema
from millpond.datastream.formats.csv import CsvBulkWriters, CsvReaderFormat, CsvSchema
from millpond.datastream.formats.parquet import (
    AvroParquetReaders,
    AvroParquetWriters,
    ParquetBulkWriters,
    ParquetColumnarRowInputFormat,
)
from millpond.driver.planning import plan_job
from millpond.errors import JobExecutionError, ProgramError, UserFunctionError
from millpond.plan.physical import JobPlan
from millpond.testing import CUT, MarkedSource, direct_environment
from tests.unit.driver.test_recovery import Crash, StandInForSpark

PAIR = Types.ROW_NAMED(["n", "s"], [Types.LONG(), Types.STRING()])


def make_file(path: Path, rows: int, group: int = 10) -> None:
    table = pyarrow.table({"s": [f"v{n}" for n in range(rows)], "n": list(range(rows))})
    parquet.write_table(table, path, row_group_size=group)


def source(folder: Path, row_type: Any = PAIR) -> FileSource:
    columns = ParquetColumnarRowInputFormat(row_type)
    return FileSource.for_bulk_file_format(columns, str(folder)).build()


def read(built: FileSource, **settings: Any) -> list[Any]:
    named = {key.replace("__", ".").replace("_", "-"): v for key, v in settings.items()}
    stream = direct_environment(named).from_source(
        built, WatermarkStrategy.no_watermarks(), "files"
    )
    return list(stream.execute_and_collect())


@pytest.mark.parametrize("batch", [1, 7, 10, 1000])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_parquet_is_read_in_any_pieces(tmp_path: Path, batch: int, parallelism: int) -> None:
    make_file(tmp_path / "a.parquet", 25)
    make_file(tmp_path / "b.parquet", 3)
    make_file(tmp_path / "none.parquet", 0)
    settings = {"millpond__batch__max_records": batch, "parallelism__default": parallelism}
    found = read(source(tmp_path), **settings)
    expected = [Row(n=n, s=f"v{n}") for n in [*range(25), *range(3)]]
    assert sorted(found, key=str) == sorted(expected, key=str)


def test_row_groups_are_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Range after range of one row group, and again if a batch fails."""
    path = str(tmp_path / "a")
    make_file(tmp_path / "a", 100, group=50)
    opened: list[int] = []
    begin = ParquetColumnarRowInputFormat._from

    def noted(self: Any, path: str, start: int) -> Any:
        opened.append(start)
        return begin(self, path, start)

    monkeypatch.setattr(ParquetColumnarRowInputFormat, "_from", noted)
    own = source(tmp_path)
    read = [v.n for at in range(0, 100, 20) for v, _ in own.read((path, at, at + 20))]
    assert read == list(range(100))
    assert opened == [0]
    assert [v.n for v, _ in own.read((path, 70, 80))] == list(range(70, 80))
    next(own.read((path, 80, 100)))
    assert [v.n for v, _ in own.read((path, 80, 100))] == list(range(80, 100))
    assert opened == [0, 70, 80]
    make_file(tmp_path / "a", 10)
    with pytest.raises(OSError, match="shrank from 100 to 10 records while it was being read"):
        list(own.read((path, 0, 100)))


def test_columns_stay_columns(tmp_path: Path) -> None:
    make_file(tmp_path / "a", 5)
    ((columns, times),) = source(tmp_path).read_many((str(tmp_path / "a"), 1, 4))
    assert isinstance(columns, pyarrow.RecordBatch) and times is None
    assert columns.column("n").to_pylist() == [1, 2, 3]


def test_columns_are_found_whatever_their_case_and_type(tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"N": numpy.arange(2, dtype="int32")}), tmp_path / "a")
    wanted = Types.ROW_NAMED(["n"], [Types.DOUBLE()])
    columns = ParquetColumnarRowInputFormat(wanted, is_case_sensitive=False)
    built = FileSource.for_bulk_file_format(columns, str(tmp_path)).build()
    assert read(built) == [Row(n=0.0), Row(n=1.0)]
    with pytest.raises(UserFunctionError, match="no column 'n', only N"):
        read(source(tmp_path, wanted))


def test_file_that_is_no_parquet_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("nothing of the kind")
    with pytest.raises(JobExecutionError, match="a cannot be read"):
        read(source(tmp_path))


def test_monitored_file_is_read_when_it_is_whole(tmp_path: Path) -> None:
    columns = ParquetColumnarRowInputFormat(PAIR)
    builder = FileSource.for_bulk_file_format(columns, str(tmp_path))
    built = builder.monitor_continuously(Duration.of_millis(10)).build()
    enumerator = built.create_enumerator(1, None)  # type: ignore[arg-type]
    enumerator.start()
    make_file(tmp_path / ".aside", 3)
    whole = (tmp_path / ".aside").read_bytes()
    (tmp_path / "a").write_bytes(whole[:-8])
    assert enumerator.poll(100) == []
    assert enumerator.ended() == [False]
    (tmp_path / "a").write_bytes(whole)
    (work,) = enumerator.poll(100)
    assert work.arguments == (str(tmp_path / "a"), 0, 3)
    assert enumerator.ended() == [True]
    again = built.create_enumerator(1, None)  # type: ignore[arg-type]
    again.restore(enumerator.position())
    again.stops_at_end = True
    again.start()
    assert again.poll(100) == [] and again.caught_up()


EVERY = Types.ROW_NAMED(
    ["b", "i", "d", "t", "l", "m", "r", "u", "at", "big", "dec", "raw"],
    [
        Types.BOOLEAN(),
        Types.INT(),
        Types.SQL_DATE(),
        Types.SQL_TIMESTAMP(),
        Types.LIST(Types.ROW_NAMED(["x"], [Types.INT()])),
        Types.MAP(Types.STRING(), Types.LONG()),
        Types.ROW_NAMED(["y"], [Types.STRING()]),
        Types.TUPLE([Types.INT(), Types.STRING()]),
        Types.INSTANT(),
        Types.BIG_INT(),
        Types.BIG_DEC(),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
    ],
)
FULL = (
    True,
    5,
    datetime.date(2024, 1, 2),
    datetime.datetime(2024, 1, 2, 3, 4, 5, 6),
    [Row(x=1), Row(x=2)],
    {"k": 7},
    Row(y="z"),
    (1, "u"),
    Instant(1700000000, 5000),
    10**30,
    decimal.Decimal("1.500000000000000000"),
    b"\x00\xff",
)


def write(folder: Path, factory: Any, records: list[Any], type_info: Any = None) -> None:
    environment = direct_environment()
    builder = FileSink.for_bulk_format(str(folder), cloudpickle.loads(cloudpickle.dumps(factory)))
    environment.from_collection(records, type_info).sink_to(builder.build())
    environment.execute()


def test_every_type_goes_to_parquet_and_comes_back(tmp_path: Path) -> None:
    write(tmp_path, ParquetBulkWriters.for_row_type(EVERY), [FULL, (None,) * 12])
    assert sorted(map(tuple, read(source(tmp_path, EVERY))), key=str) == sorted(
        [FULL, (None,) * 12], key=str
    )


def test_columns_go_to_parquet_as_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_file(tmp_path / "in", 5)
    (tmp_path / "out").mkdir()
    environment = direct_environment()
    stream = environment._source(source(tmp_path / "in"), "files", None)
    factory = ParquetBulkWriters.for_row_type(PAIR)
    stream.sink_to(FileSink.for_bulk_format(str(tmp_path / "out"), factory).build())
    monkeypatch.setattr("millpond.core.record_columns.as_list", None)
    environment.execute()
    monkeypatch.undo()
    assert parquet.read_table(tmp_path / "out").column("n").to_pylist() == list(range(5))


def test_bad_row_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserFunctionError, match=r"\('x', 'y'\)"):
        write(tmp_path, ParquetBulkWriters.for_row_type(PAIR), [(1, "a"), ("x", "y")])
    assert list(tmp_path.iterdir()) == []


def job(folder: Path, part_size: int) -> JobPlan:
    environment = direct_environment()
    records = [item for n in range(6) for item in ((n, f"{n}"), CUT)]
    stream = environment._source(MarkedSource(records), "records", None)
    builder = FileSink.for_bulk_format(str(folder), ParquetBulkWriters.for_row_type(PAIR))
    policy = RollingPolicy.default_rolling_policy(part_size)
    stream.sink_to(builder.with_rolling_policy(policy).build()).uid("out")
    graph, config = environment._pending_graph(), environment.get_config()
    return plan_job(graph, environment._configuration, config, None)


@pytest.mark.parametrize("point", ["planned", "ran", "completed", "committed"])
@pytest.mark.parametrize("part_size", [1, 100_000])
def test_every_row_comes_once_wherever_the_job_dies(
    tmp_path: Path, point: str, part_size: int
) -> None:
    """E43. Small files are joined, and their row groups, too."""
    spark, out = StandInForSpark(), tmp_path / "out"
    with pytest.raises(Crash):
        spark.run(job(out, part_size), tmp_path / "jobs", (3, point))
    spark.run(job(out, part_size), tmp_path / "jobs", None)
    files = list(out.iterdir())
    rows = [row for path in files for row in parquet.read_table(path).to_pylist()]
    assert sorted(row["n"] for row in rows) == list(range(6))
    assert len(files) == (6 if part_size == 1 else 2)
    assert {parquet.ParquetFile(path).num_row_groups for path in files} == {1}


def test_avro_records_in_parquet(tmp_path: Path) -> None:
    schema = AvroSchema.parse_string(
        """{"type": "record", "name": "R", "fields": [
        {"name": "id", "type": "int"}, {"name": "o", "type": ["null", "string"]},
        {"name": "a", "type": {"type": "array", "items": {
            "type": "record", "name": "I", "fields": [{"name": "x", "type": "double"}]}}},
        {"name": "one", "type": "I"}, {"name": "m", "type": {"type": "map", "values": "long"}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A"]}}]}"""
    )
    record = {"id": 1, "o": None, "a": [{"x": 1.5}], "one": {"x": 2.0}, "m": {"k": 3}, "e": "A"}
    write(tmp_path, AvroParquetWriters.for_generic_record(schema), [record])
    columns = AvroParquetReaders.for_generic_record(schema)
    built = FileSource.for_record_stream_format(columns, str(tmp_path)).build()
    assert read(built) == [record]


def test_avro_files(tmp_path: Path) -> None:
    """Blocks of small files are joined; a reader's schema may have more fields."""
    text = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}%s]}'
    schema = AvroSchema.parse_string(text % "")
    environment = direct_environment()
    records = [item for n in range(5) for item in ({"id": n}, CUT)]
    stream = environment._source(MarkedSource(records), "records", None)
    writers = AvroBulkWriters.for_generic_record(schema)
    stream.sink_to(FileSink.for_bulk_format(str(tmp_path), writers).build())
    environment.execute()
    (path,) = tmp_path.iterdir()
    newer = AvroSchema.parse_string(text % ', {"name": "s", "type": "string", "default": "x"}')
    environment = direct_environment({"millpond.batch.max-records": 2})
    found = environment.create_input(AvroInputFormat(str(tmp_path), newer)).execute_and_collect()
    assert list(found) == [{"id": n, "s": "x"} for n in range(5)]
    with pytest.raises(UserFunctionError, match="'wrong'"):
        write(tmp_path, writers, [{"id": 1}, {"id": "wrong"}])
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(JobExecutionError, match="cannot be read"):
        list(
            direct_environment()
            .create_input(AvroInputFormat(str(path), newer))
            .execute_and_collect()
        )


def test_settings_without_effect_are_refused() -> None:
    config = Configuration()
    config.set_string("parquet.block.size", "1")
    with pytest.raises(ProgramError, match=r"parquet\.block\.size would have no effect"):
        ParquetBulkWriters.for_row_type(PAIR, hadoop_config=config)
    with pytest.raises(ProgramError, match=r"Types\.ROW_NAMED or a pyarrow\.Schema"):
        ParquetColumnarRowInputFormat(row_type=Types.LONG())


class Numbered(BulkFormat):
    """A user's own format: a file of fixed-length numbers."""

    def count(self, path: str) -> int:
        return Path(path).stat().st_size // 4

    def read(self, path: str, start: int, end: int) -> Any:
        with open(path, "rb") as file:
            file.seek(4 * start)
            yield [int.from_bytes(file.read(4), "big") for _ in range(start, end)]


def test_own_format(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"".join(n.to_bytes(4, "big") for n in range(9)))
    built = FileSource.for_bulk_file_format(Numbered(), str(tmp_path)).build()
    assert read(built, millpond__batch__max_records=4) == list(range(9))


def test_csv_files_with_header(tmp_path: Path) -> None:
    schema = (
        CsvSchema.builder()
        .add_number_column("n")
        .add_string_column("s")
        .add_boolean_column("b")
        .set_column_separator("|")
        .set_use_header()
        .build()
    )
    environment = direct_environment()
    records = [(1, "a|b", True), CUT, (2, "c", None), CUT]
    stream = environment._source(MarkedSource(records), "records", None)
    builder = FileSink.for_bulk_format(str(tmp_path), CsvBulkWriters.for_schema(schema))
    stream.sink_to(builder.build())
    environment.execute()
    (path,) = tmp_path.iterdir()
    assert path.read_text() == 'n|s|b\n1|"a|b"|true\n2|c|\n'
    built = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), str(tmp_path))
    assert list(map(tuple, read(built.build()))) == [(1, "a|b", True), (2, "c", None)]


def test_records_and_columns_give_the_same(tmp_path: Path) -> None:
    make_file(tmp_path / "a", 3)
    own = source(tmp_path)
    ((columns, _),) = own.read_many((str(tmp_path / "a"), 0, 3))
    assert as_list(columns) == [value for value, _ in own.read((str(tmp_path / "a"), 0, 3))]
