"""Everything here must hold with every state backend."""

from __future__ import annotations

import dataclasses

import pytest

from millpond.common import options

BACKENDS = ["hashmap", "rocksdb", "tests.sqlite_backend.SqliteBackend"]


@pytest.fixture(params=BACKENDS, ids=["hashmap", "rocksdb", "own"], autouse=True)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    default = dataclasses.replace(options.STATE_BACKEND, default=request.param)
    monkeypatch.setattr(options, "STATE_BACKEND", default)
    return str(request.param)
