"""A state backend as a user would bring one: an ordered store on SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

from millpond.datastream.state_backend import BackendContext, OrderedStore, OrderedStoreBackend


class SqliteStore(OrderedStore):
    def __init__(self, path: str) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("pragma synchronous = off")
        self._db.execute("create table entries (place blob primary key, value blob) without rowid")

    def get(self, key: bytes) -> bytes | None:
        row = self._db.execute("select value from entries where place = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        query = "select place, value from entries where place >= ? and place < ? order by place"
        return iter(self._db.execute(query, (start, end)).fetchall())

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        self._db.execute("begin")
        self._db.executemany("delete from entries where place = ?", [(key,) for key in deletes])
        self._db.executemany("insert or replace into entries values (?, ?)", puts)
        self._db.execute("commit")

    def close(self) -> None:
        self._db.close()


class SqliteBackend(OrderedStoreBackend):
    def open_store(self, context: BackendContext) -> OrderedStore:
        return SqliteStore(str(context.folder / "state.db"))
