"""Parquet files, read and written as columns, with PyFlink's names.

The type of rows is `Types.ROW_NAMED` or, beyond PyFlink, a `pyarrow.Schema`. Timestamps are UTC.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow
from pyarrow import parquet

from millpond.common.configuration import Configuration
from millpond.common.serialization import (
    BulkWriter,
    BulkWriterFactory,
    RowDataBulkWriterFactory,
)
from millpond.datastream.connectors.file_system.formats import BulkFormat
from millpond.datastream.formats.arrow_types import RowColumns, avro_to_arrow
from millpond.datastream.formats.avro import AvroSchema
from millpond.datastream.formats.ranges import read_range
from millpond.errors import ProgramError

__all__ = [
    "AvroParquetReaders",
    "AvroParquetWriters",
    "ParquetBulkWriters",
    "ParquetColumnarRowInputFormat",
]
_ROWS_AT_ONCE = 65536
_GROUP_BYTES = 64 * 1024 * 1024  # in memory; a row group of a file has about so much


class _ParquetFormat(BulkFormat):
    """`schema` says which columns, and as what."""

    def __init__(self, schema: pyarrow.Schema, is_case_sensitive: bool = True) -> None:
        self._schema = schema
        self._is_case_sensitive = is_case_sensitive

    def count(self, path: str) -> int:
        with parquet.ParquetFile(path) as file:
            return int(file.metadata.num_rows)

    def read(self, path: str, start: int, end: int) -> Iterator[Any]:
        form = (str(self._schema), self._is_case_sensitive)
        for columns in read_range(path, form, lambda first: self._from(path, first), start, end):
            yield self._to_records(self._renamed(columns))

    def _from(self, path: str, start: int) -> Iterator[pyarrow.RecordBatch]:
        with parquet.ParquetFile(path) as file:
            names = self._columns_in(file)
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if start >= rows:
                    start -= rows
                    continue
                for batch in file.iter_batches(_ROWS_AT_ONCE, [group], names, use_threads=False):
                    if start < len(batch):
                        yield batch.slice(start)
                    start = max(0, start - len(batch))

    def _to_records(self, columns: pyarrow.RecordBatch) -> Any:
        return columns

    def _columns_in(self, file: parquet.ParquetFile) -> list[str]:
        """The columns of the schema, as the file calls them."""
        own = {self._folded(name): name for name in file.schema_arrow.names}
        missing = [n for n in self._schema.names if self._folded(n) not in own]
        if missing:
            raise ValueError(f"the file has no column '{missing[0]}', only {', '.join(own)}")
        return [own[self._folded(name)] for name in self._schema.names]

    def _renamed(self, columns: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        by_name = {self._folded(name): name for name in columns.schema.names}
        arrays = [columns.column(by_name[self._folded(n)]) for n in self._schema.names]
        found = pyarrow.RecordBatch.from_arrays(arrays, self._schema.names)
        return found if found.schema.equals(self._schema) else found.cast(self._schema)

    def _folded(self, name: str) -> str:
        return name if self._is_case_sensitive else name.lower()


class ParquetColumnarRowInputFormat(_ParquetFormat):
    """Rows of Parquet files, read as columns: a function that takes single records gets `Row`s."""

    def __init__(
        self,
        row_type: Any,
        hadoop_config: Configuration | None = None,
        batch_size: int = 2048,
        is_utc_timestamp: bool = False,
        is_case_sensitive: bool = True,
    ) -> None:
        """`batch_size` and `is_utc_timestamp` have no meaning here."""
        _refuse_hadoop(hadoop_config)
        self._rows = RowColumns(row_type)
        super().__init__(self._rows.schema, is_case_sensitive)

    def _to_records(self, columns: pyarrow.RecordBatch) -> Any:
        return self._rows.records_of(columns)


class _AvroParquetFormat(_ParquetFormat):
    def _to_records(self, columns: pyarrow.RecordBatch) -> Any:
        return columns.to_pylist(maps_as_pydicts="strict")


class AvroParquetReaders:
    @staticmethod
    def for_generic_record(schema: AvroSchema) -> BulkFormat:
        """Records as dictionaries."""
        return _AvroParquetFormat(avro_to_arrow(schema.parsed))


# --- writing -----------------------------------------------------------------------------------------


class _ParquetWriter(BulkWriter):
    """Keeps columns until there are enough of them for a row group."""

    def __init__(
        self,
        file: BinaryIO,
        schema: pyarrow.Schema,
        to_columns: Callable[[Any], pyarrow.RecordBatch],
    ) -> None:
        self._writer = parquet.ParquetWriter(file, schema, compression="snappy")
        self._to_columns = to_columns
        self._kept: list[pyarrow.RecordBatch] = []
        self._kept_bytes = 0

    def add_elements(self, values: Any) -> None:
        columns = self._to_columns(values)
        self._kept.append(columns)
        self._kept_bytes += columns.nbytes
        if self._kept_bytes >= _GROUP_BYTES:
            self._write()

    def unwritten_bytes(self) -> int:
        return self._kept_bytes // 2  # on disk it is smaller

    def finish(self) -> None:
        self._write()
        self._writer.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # of a writer that was given up
            self._writer.close()

    def _write(self) -> None:
        if self._kept:
            table = pyarrow.Table.from_batches(self._kept).combine_chunks()
            self._writer.write_table(table, row_group_size=len(table))
            self._kept, self._kept_bytes = [], 0


class _ParquetFactory(RowDataBulkWriterFactory):
    can_join = True

    def __init__(self, row_type: Any, schema: pyarrow.Schema) -> None:
        super().__init__(row_type)
        self._schema = schema

    def _columns_of(self, values: Any) -> pyarrow.RecordBatch:
        return pyarrow.RecordBatch.from_pylist(values, self._schema)

    def create(self, file: BinaryIO) -> BulkWriter:
        return _ParquetWriter(file, self._schema, self._columns_of)

    def join(self, pieces: list[Path], file: BinaryIO) -> None:
        """Also small row groups become large ones."""
        writer = _ParquetWriter(file, self._schema, lambda columns: columns)
        for piece in pieces:
            with parquet.ParquetFile(piece) as own:
                for batch in own.iter_batches(_ROWS_AT_ONCE, use_threads=False):
                    writer.add_elements(batch.cast(self._schema))
        writer.finish()


class _RowFactory(_ParquetFactory):
    takes_columns = True

    def __init__(self, row_type: Any) -> None:
        self._rows = RowColumns(row_type)
        super().__init__(row_type, self._rows.schema)

    def _columns_of(self, values: Any) -> pyarrow.RecordBatch:
        return self._rows.columns_of(values)


class ParquetBulkWriters:
    @staticmethod
    def for_row_type(
        row_type: Any, hadoop_config: Configuration | None = None, utc_timestamp: bool = False
    ) -> BulkWriterFactory:
        """`utc_timestamp` has no meaning: timestamps are UTC."""
        _refuse_hadoop(hadoop_config)
        return _RowFactory(row_type)


class AvroParquetWriters:
    @staticmethod
    def for_generic_record(schema: AvroSchema) -> BulkWriterFactory:
        """For records that are dictionaries."""
        return _ParquetFactory(None, avro_to_arrow(schema.parsed))


def _refuse_hadoop(config: Configuration | None) -> None:
    if config is not None and config.to_dict():
        raise ProgramError(
            f"There is no Hadoop here: {', '.join(config.to_dict())} would have no effect."
        )
