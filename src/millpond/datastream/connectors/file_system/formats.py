"""How files become records: line by line (StreamFormat), or many at a time (BulkFormat)."""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from millpond.common.serialization import DeserializationSchema
from millpond.errors import ProgramError, UnsupportedFeatureError

_BLOCK_BYTES = 256 * 1024
Values = Any  # a list of records, or an Arrow record batch


def local_path(path: str) -> Path:
    """Return the absolute path for a path or file:// URL; raise UnsupportedFeatureError for other URLs."""
    url = urlparse(path)
    if url.scheme not in ("", "file"):
        raise UnsupportedFeatureError(
            f"The path '{path}' cannot be used: only local and shared (NFS) file systems are supported."
        )
    return Path(unquote(url.path) if url.scheme else path).absolute()


class StreamFormat(ABC):
    """One record per line; a file may be read in pieces that end at line breaks."""

    block_bytes = _BLOCK_BYTES  # about how much to read at once; 0: line by line
    has_header = False  # True: the first line is not a record

    @abstractmethod
    def read(self, block: bytes) -> Values | None:
        """Return the records in whole lines, or None if there are none."""

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat:
        """Return a format that reads lines as text; raise ProgramError for a charset whose line breaks are
        not plain bytes."""
        if "\n".encode(charset_name) != b"\n":
            raise ProgramError(f"Text in {charset_name} cannot be read line by line; use UTF-8.")
        return _TextLines(charset_name)

    @staticmethod
    def binary_line_format() -> StreamFormat:
        """Return a format that reads lines as bytes, whatever is in them. Beyond PyFlink."""
        return _BinaryLines()

    @staticmethod
    def for_lines(deserialization_schema: DeserializationSchema) -> StreamFormat:
        """Return a format that reads lines with a schema, such as JsonRowDeserializationSchema. Beyond
        PyFlink."""
        return _SchemaLines(deserialization_schema)


class BulkFormat(ABC):
    """Records that are encoded many at a time. A file is complete when it can be read."""

    @abstractmethod
    def count(self, path: str) -> int:
        """Return how many records a file has; raise OSError or ValueError if it is not (yet) a file of
        this format."""

    @abstractmethod
    def read(self, path: str, start: int, end: int) -> Iterator[Values]:
        """Yield the records from `start` to `end` - 1, in lists or Arrow record batches."""


def _lines(block: bytes) -> list[bytes]:
    raw = block.split(b"\n")
    if not raw[-1]:
        raw.pop()  # the empty rest after the last line break
    return [line.rstrip(b"\r") for line in raw] if b"\r" in block else raw


class _BinaryLines(StreamFormat):
    def read(self, block: bytes) -> Values:
        return _lines(block)


class _TextLines(StreamFormat):
    def __init__(self, charset_name: str) -> None:
        self._charset = charset_name
        if codecs.lookup(charset_name).name not in ("utf-8", "ascii", "iso8859-1"):
            self.block_bytes = 0

    def read(self, block: bytes) -> Values:
        if self.block_bytes == 0:
            return [block.rstrip(b"\r\n").decode(self._charset)]
        lines = block.decode(self._charset).split("\n")
        if not lines[-1]:
            lines.pop()
        return [line.rstrip("\r") for line in lines] if b"\r" in block else lines


class _SchemaLines(StreamFormat):
    def __init__(self, schema: DeserializationSchema) -> None:
        self._schema = schema

    def read(self, block: bytes) -> Values:
        lines = [line for line in _lines(block) if line]
        try:
            values = self._schema.deserialize_many(lines)
        except Exception:
            values = [self._one(line) for line in lines]
        return [value for value in values if value is not None]

    def _one(self, line: bytes) -> object:
        try:
            return self._schema.deserialize(line)
        except Exception as problem:
            raise ValueError(f"the line {line[:200]!r} cannot be read: {problem}") from None
