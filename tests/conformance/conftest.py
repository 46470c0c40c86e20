"""Everything here must hold with every state backend."""

from __future__ import annotations

import dataclasses

import pytest

from millpond.common import options
from millpond.errors import StateLostError

BACKENDS = ["hashmap", "memory", "rocksdb", "tests.sqlite_backend.SqliteBackend"]


@pytest.fixture(params=BACKENDS, ids=["hashmap", "memory", "rocksdb", "own"], autouse=True)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    default = dataclasses.replace(options.STATE_BACKEND, default=request.param)
    monkeypatch.setattr(options, "STATE_BACKEND", default)
    return str(request.param)


@pytest.fixture
def needs_log(backend: str, request: pytest.FixtureRequest) -> None:
    """For tests in which a worker dies: what is kept in memory only is gone with it, and the job says so."""
    if backend == "memory":
        request.applymarker(pytest.mark.xfail(raises=StateLostError, strict=True))
