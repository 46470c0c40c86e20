"""Avro's container files: records as dictionaries. Needs the extra `avro` (fastavro)."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

from millpond.common.serialization import BulkWriter, BulkWriterFactory
from millpond.datastream.connectors.file_system.formats import BulkFormat
from millpond.datastream.formats.ranges import read_range


class AvroFormat(BulkFormat):
    """Reads Avro files. `parsed` is the reader's schema; files may be written with an older or newer one."""

    def __init__(self, parsed: dict[str, Any]) -> None:
        self._parsed = parsed

    def count(self, path: str) -> int:
        with open(path, "rb") as file:
            return sum(block.num_records for block in _read().block_reader(file))

    def read(self, path: str, start: int, end: int) -> Iterator[Any]:
        form = json.dumps(self._parsed, sort_keys=True, default=str)
        return read_range(path, form, lambda first: self._from(path, first), start, end)

    def _from(self, path: str, start: int) -> Iterator[list[Any]]:
        with open(path, "rb") as file:
            for block in _read().block_reader(file, self._parsed):
                if start < block.num_records:
                    yield list(block)[start:]
                start = max(0, start - block.num_records)


class AvroWriterFactory(BulkWriterFactory):
    """Creates writers of Avro files, compressed with deflate."""

    can_join = True

    def __init__(self, parsed: dict[str, Any]) -> None:
        self._parsed = parsed

    def create(self, file: BinaryIO) -> BulkWriter:
        return _AvroWriter(_write().Writer(file, self._parsed, "deflate", validator=True))

    def join(self, pieces: list[Path], file: BinaryIO) -> None:
        """Copy the blocks of all pieces unchanged."""
        writer = _write().Writer(file, self._parsed, "deflate")
        for piece in pieces:
            with piece.open("rb") as source:
                for block in _read().block_reader(source):
                    writer.write_block(block)
        writer.flush()


class _AvroWriter(BulkWriter):
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def add_elements(self, values: list[Any]) -> None:
        for value in values:
            self._writer.write(value)

    def finish(self) -> None:
        self._writer.flush()


def _read() -> ModuleType:
    return importlib.import_module("fastavro")


def _write() -> ModuleType:
    return importlib.import_module("fastavro.write")
