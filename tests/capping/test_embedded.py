"""The Redis that a job has if it is given none."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from millpond.apps.frequency_capping.embedded import embedded_redis, embedded_url
from millpond.datastream.connectors.redis.connection import connect


@pytest.mark.parametrize("depth", [0, 20])
def test_embedded_redis_keeps_what_is_in_it(tmp_path: Path, depth: int) -> None:
    """However long the path is: sockets have short ones."""
    folder = tmp_path.joinpath(*["deeper"] * depth)
    for keeps, expected in ((True, set()), (True, {b"ad:1"}), (False, {b"ad:1"})):
        with embedded_redis(folder, keeps) as url:
            assert url == embedded_url(folder)
            with connect(url) as client:
                if keeps:
                    assert client.smembers("cap:{1}") == expected
                    client.sadd("cap:{1}", "ad:1")
                else:
                    assert client.dbsize() == 0


def test_embedded_redis_of_a_job_that_was_killed_is_replaced(tmp_path: Path) -> None:
    with embedded_redis(tmp_path, keeps=True) as url, connect(url) as client:
        client.sadd("cap:{1}", "ad:1")
        first = client.info()["process_id"]
        with embedded_redis(tmp_path, keeps=True), connect(url) as again:
            assert again.smembers("cap:{1}") == {b"ad:1"}
            assert again.info()["process_id"] != first
    with pytest.raises(ProcessLookupError):
        os.kill(first, signal.SIGCONT)
