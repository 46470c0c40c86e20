"""The file with a dispatcher's token: private, complete, and one for all (O9)."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from millpond.dispatcher.token_file import make_token_file, read_token
from millpond.errors import SetupError


def test_token_is_private_and_long_whatever_the_mask_is(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = make_token_file(tmp_path / "token")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and len(read_token(path)) >= 43
    assert make_token_file(tmp_path / "other").read_text() != path.read_text()


def test_dispatchers_that_start_at_once_agree_on_one(tmp_path: Path) -> None:
    path, together, seen = tmp_path / "token", threading.Barrier(8), []

    def start() -> None:
        together.wait()
        seen.append(read_token(make_token_file(path)))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8 and len(set(seen)) == 1
    assert [own.name for own in tmp_path.iterdir()] == ["token"], "nothing is left beside it"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = make_token_file(tmp_path / "token")
    path.chmod(mode)
    with pytest.raises(SetupError, match="open to others"):
        make_token_file(path)


def test_what_is_wrong_with_a_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="--token-file"):
        make_token_file(tmp_path / "nowhere" / "token")
    with pytest.raises(SetupError, match="Cannot read the token file"):
        read_token(tmp_path / "token")
    (tmp_path / "token").write_text("short\n")
    with pytest.raises(SetupError, match="at least 16 characters") as caught:
        read_token(tmp_path / "token")
    assert "short\n" not in str(caught.value)
