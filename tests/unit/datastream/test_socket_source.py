"""Lines from a socket: all that was planned counts, once; the rest is lost with its connection."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from millpond.datastream.connectors.socket_source import SocketSource
from millpond.datastream.stream_graph import SinkKind
from millpond.driver.planning import plan_job
from millpond.errors import JobExecutionError, ProgramError
from millpond.plan.physical import JobPlan
from millpond.testing import direct_environment
from tests.servers import free_port, wait_until
from tests.unit.driver.test_recovery import Crash, StandInForSpark


@contextmanager
def server(*talks: Callable[[socket.socket], None]) -> Iterator[int]:
    """Serves one connection after the other, with what each talk sends."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for talk in talks:
            connection, _ = listening.accept()
            with connection:
                talk(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    yield listening.getsockname()[1]
    thread.join(30)
    listening.close()
    assert not thread.is_alive()


def says(data: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(data)


@pytest.mark.parametrize("batch", [1, 2, 1000])
def test_lines_come_in_order_until_the_other_side_closes(batch: int) -> None:
    environment = direct_environment({"millpond.batch.max-records": batch})
    with server(says("one\r\ntwo\n\nvier: ä\nno end".encode())) as port:
        stream = environment.socket_text_stream("127.0.0.1", port)
        found = list(stream.execute_and_collect())
    assert found == ["one", "two", "", "vier: ä", "no end"]


def test_other_delimiter() -> None:
    with server(says(b"a||b|c||")) as port:
        stream = direct_environment().socket_text_stream("127.0.0.1", port, "||")
        assert list(stream.execute_and_collect()) == ["a", "b|c"]


def test_nobody_listens() -> None:
    stream = direct_environment().socket_text_stream("127.0.0.1", free_port())
    with pytest.raises(JobExecutionError, match=r"127\.0\.0\.1:\d+ cannot be read"):
        list(stream.execute_and_collect())


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ProgramError, match="port must be between"):
        SocketSource("localhost", 0)
    with pytest.raises(ProgramError, match="delimiter"):
        SocketSource("localhost", 1, "")


def test_connects_again_if_it_is_told_so() -> None:
    source = SocketSource("127.0.0.1", 1, max_retry=-1)
    assert source.endless
    with server(says(b"a\n"), says(b"b\n")) as port:
        source = SocketSource("127.0.0.1", port, max_retry=-1)
        works = source.create_enumerator(1, None)  # type: ignore[arg-type]
        works.start()
        found: list[str] = []

        def take() -> bool:
            found.extend(v for work in works.poll(10) for v, _ in source.read(work.arguments))
            return len(found) == 2

        wait_until(take, "the second connection is not read")
        assert found == ["a", "b"]
        assert works.ended() == [False] and works.split_count() == 1
    works.close()


def test_close_ends_a_silent_connection() -> None:
    done = threading.Event()
    with server(lambda connection: [connection.sendall(b"x\n"), done.wait(30)][0]) as port:
        source = SocketSource("127.0.0.1", port)
        works: Any = source.create_enumerator(1, None)  # type: ignore[arg-type]
        works.start()
        wait_until(lambda: works.poll(10), "nothing comes")
        works.close()
        assert not works._thread.is_alive()
        done.set()


@pytest.mark.parametrize("point", ["planned", "ran", "completed", "committed"])
def test_what_was_planned_survives_the_driver(
    tmp_path: Path, point: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second connection brings what comes after; it does not repeat anything."""

    def plan(port: int) -> JobPlan:
        environment = direct_environment()
        stream = environment.socket_text_stream("127.0.0.1", port).uid("socket")
        stream._sink("out", SinkKind.PRINT, None)
        graph, config = environment._pending_graph(), environment.get_config()
        return plan_job(graph, environment._configuration, config, None)

    def says_and_waits(connection: socket.socket) -> None:
        connection.sendall(b"a\n")
        assert connection.recv(1) == b"", "until the other side is gone"

    spark = StandInForSpark()
    with server(says_and_waits) as port, pytest.raises(Crash):
        spark.run(plan(port), tmp_path, (0, point))
    before = capsys.readouterr().out.split()
    with server(says(b"c\n")) as port:
        spark.run(plan(port), tmp_path, None)
    after = capsys.readouterr().out.split()
    assert before == ([] if point in ("planned", "ran") else ["a"])
    assert after == (["a", "c"] if point in ("planned", "ran") else ["c"])
