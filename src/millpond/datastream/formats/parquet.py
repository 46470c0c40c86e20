"""Parquet files, read and written as columns, with PyFlink's names.

The row type is `Types.ROW_NAMED` or, beyond PyFlink, a `pyarrow.Schema`. Timestamps are UTC.
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
_GROUP_BYTES = 64 * 1024 * 1024  # size of a row group in memory, roughly


class _ParquetFormat(BulkFormat):
    """Reads the columns of `schema`, as the types it says."""

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

    def _to_records(self, columns: pyarrow.RecordBatch) -> object:
        return columns

    def _columns_in(self, file: parquet.ParquetFile) -> list[str]:
        """Return the columns of the schema under the names that the file has for them."""
        columns = {self._folded(name): name for name in file.schema_arrow.names}
        missing = [n for n in self._schema.names if self._folded(n) not in columns]
        if missing:
            raise ValueError(f"the file has no column '{missing[0]}', only {', '.join(columns)}")
        return [columns[self._folded(name)] for name in self._schema.names]

    def _renamed(self, columns: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        by_name = {self._folded(name): name for name in columns.schema.names}
        arrays = [columns.column(by_name[self._folded(n)]) for n in self._schema.names]
        renamed = pyarrow.RecordBatch.from_arrays(arrays, self._schema.names)
        return renamed if renamed.schema.equals(self._schema) else renamed.cast(self._schema)

    def _folded(self, name: str) -> str:
        return name if self._is_case_sensitive else name.lower()


class ParquetColumnarRowInputFormat(_ParquetFormat):
    """Reads rows of Parquet files as columns; a function that takes single records gets `Row`s."""

    def __init__(
        self,
        row_type: object,
        hadoop_config: Configuration | None = None,
        batch_size: int = 2048,
        is_utc_timestamp: bool = False,
        is_case_sensitive: bool = True,
    ) -> None:
        """Take the row type. `batch_size` and `is_utc_timestamp` have no effect; a Hadoop configuration is
        refused."""
        _refuse_hadoop(hadoop_config)
        self._rows = RowColumns(row_type)
        super().__init__(self._rows.schema, is_case_sensitive)

    def _to_records(self, columns: pyarrow.RecordBatch) -> object:
        return self._rows.records_of(columns)


class _AvroParquetFormat(_ParquetFormat):
    def _to_records(self, columns: pyarrow.RecordBatch) -> object:
        return columns.to_pylist(maps_as_pydicts="strict")


class AvroParquetReaders:
    """Factory methods for readers of Parquet files by Avro schemas."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> BulkFormat:
        """Return a format that reads records as dictionaries."""
        return _AvroParquetFormat(avro_to_arrow(schema.parsed))


# --- writing -----------------------------------------------------------------------------------------


class _ParquetWriter(BulkWriter):
    """Collects columns until there are enough for a row group."""

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

    def add_elements(self, values: object) -> None:
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
        with contextlib.suppress(Exception):  # the writer may have been abandoned half-way
            self._writer.close()

    def _write(self) -> None:
        if self._kept:
            table = pyarrow.Table.from_batches(self._kept).combine_chunks()
            self._writer.write_table(table, row_group_size=len(table))
            self._kept, self._kept_bytes = [], 0


class _ParquetFactory(RowDataBulkWriterFactory):
    can_join = True

    def __init__(self, row_type: object, schema: pyarrow.Schema) -> None:
        super().__init__(row_type)
        self._schema = schema

    def _columns_of(self, values: object) -> pyarrow.RecordBatch:
        return pyarrow.RecordBatch.from_pylist(values, self._schema)

    def create(self, file: BinaryIO) -> BulkWriter:
        return _ParquetWriter(file, self._schema, self._columns_of)

    def join(self, pieces: list[Path], file: BinaryIO) -> None:
        """Write the records of all pieces; small row groups become large ones."""
        writer = _ParquetWriter(file, self._schema, lambda columns: columns)
        for piece in pieces:
            with parquet.ParquetFile(piece) as source:
                for batch in source.iter_batches(_ROWS_AT_ONCE, use_threads=False):
                    writer.add_elements(batch.cast(self._schema))
        writer.finish()


class _RowFactory(_ParquetFactory):
    takes_columns = True

    def __init__(self, row_type: object) -> None:
        self._rows = RowColumns(row_type)
        super().__init__(row_type, self._rows.schema)

    def _columns_of(self, values: object) -> pyarrow.RecordBatch:
        return self._rows.columns_of(values)


class ParquetBulkWriters:
    """Factory methods for writers of Parquet files, for `FileSink.for_bulk_format`."""

    @staticmethod
    def for_row_type(
        row_type: object, hadoop_config: Configuration | None = None, utc_timestamp: bool = False
    ) -> BulkWriterFactory:
        """Return a factory of writers for rows. `utc_timestamp` has no effect: timestamps are always UTC."""
        _refuse_hadoop(hadoop_config)
        return _RowFactory(row_type)


class AvroParquetWriters:
    """Factory methods for writers of Parquet files by Avro schemas."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> BulkWriterFactory:
        """Return a factory of writers for records that are dictionaries."""
        return _ParquetFactory(None, avro_to_arrow(schema.parsed))


def _refuse_hadoop(config: Configuration | None) -> None:
    if config is not None and config.to_dict():
        raise ProgramError(
            f"Leave the Hadoop configuration out: {', '.join(config.to_dict())} would have no effect."
        )
