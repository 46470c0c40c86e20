"""Where Spark's sockets on one machine are: in a folder of the user, at a path that is short enough (O9)."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from millpond.errors import MillpondError
from millpond.executors.spark import local_sockets


def place(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path | None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    found = local_sockets.socket_settings().get("spark.python.unix.domain.socket.dir")
    return Path(found) if found else None


def test_folder_is_private(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as folder:
        own = place(monkeypatch, Path(folder))
        assert own is not None and own.is_relative_to(folder)
        for path in (own, own.parent):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
        own.parent.chmod(0o755)
        with pytest.raises(MillpondError, match="open to others"):
            place(monkeypatch, Path(folder))


def test_long_temporary_folder_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The system would refuse a socket there."""
    own = place(monkeypatch, tmp_path / ("long" * 20))
    assert own == Path(f"/tmp/millpond-{os.getuid()}/spark")
