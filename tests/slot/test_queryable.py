"""Look-ups in real slot processes, without Spark (O6)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from millpond.common import Types
from millpond.datastream import KeyedProcessFunction, RuntimeContext
from millpond.datastream.state import ReducingStateDescriptor, ValueStateDescriptor
from millpond.errors import (
    QueryableStateError,
    RetryLaterError,
    SetupError,
    UnknownKeyError,
    UnknownStateError,
)
from millpond.executors.slot import relay as relay_module
from millpond.executors.slot.relay import Relay
from millpond.queryable import AsyncQueryableStateClient, QueryableStateClient, StateProxy, files
from millpond.queryable.locations import describe
from millpond.queryable.protocol import MAX_HELLO_BYTES, MessageKind, encode
from millpond.queryable.proxy import status_of
from tests.slot.processes import slots_of, wait_until
from tests.slot.test_slot import Job

pytestmark = pytest.mark.slot


class Count(KeyedProcessFunction):
    """Counts words, for others to look up."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ReducingStateDescriptor("count", lambda a, b: a + b, Types.LONG())
        descriptor.set_queryable("counts")
        self.count = runtime_context.get_reducing_state(descriptor)

    def process_element(self, value: str, ctx: Any) -> None:
        self.count.add(1)
        if value == "wait":
            (self._folder / "waits").touch()
            wait_until((self._folder / "go on").exists, "nobody lets the function go on")


class QueryableJob(Job):
    """Batches are committed as the driver would do it."""

    epoch = -1

    def batch(self, relay: Relay, records: list[str], commit: bool = True) -> None:
        self.run(relay, records, commit, self.epoch + 1)
        if commit:
            self.epoch += 1
            files.write_committed(self.folder, self.settings.generation, self.epoch)
            for own in files.read_locations(self.folder, self.settings.generation):
                files.write_states(self.folder, own.generation, own.states)

    def kill(self) -> None:
        (pid,) = slots_of(self.folder)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not slots_of(self.folder), "the slot does not end")

    def address(self) -> tuple[str, int]:
        (own,) = files.read_locations(self.folder, self.settings.generation)
        return own.host, own.port


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[QueryableJob]:
    monkeypatch.setattr(relay_module, "executor_pid", os.getpid)
    job = QueryableJob(tmp_path, Count(tmp_path))
    yield job
    for relay in job.relays:
        relay.close()
    generation = job.settings.generation
    (tmp_path / "run").write_text(f"{generation} ended")
    wait_until(lambda: not slots_of(tmp_path), "slots outlive their job")


@pytest.fixture
def client(tmp_path: Path) -> Iterator[QueryableStateClient]:
    with QueryableStateClient.for_folder(tmp_path) as client:
        yield client


def test_look_ups_see_committed_batches_and_an_idle_job_shows_the_newest(
    job: QueryableJob, client: QueryableStateClient
) -> None:
    relay = job.relay()
    job.batch(relay, ["a", "b", "a"])
    assert client.get("job", "counts", "a") == 2
    job.batch(relay, ["a"], commit=False)
    assert client.get("job", "counts", "a") == 2, "a batch that is lost never shows"
    job.batch(relay, ["a", "c"])
    assert client.get_many("job", "counts", ["a", "b", "c", "d"]) == {"a": 3, "b": 1, "c": 1}
    with pytest.raises(UnknownKeyError, match="'counts' has nothing for key 'd'"):
        client.get("job", "counts", "d")


def test_look_ups_are_answered_while_a_function_works(
    job: QueryableJob, client: QueryableStateClient
) -> None:
    relay = job.relay()
    job.batch(relay, ["a"])
    working = threading.Thread(target=job.batch, args=(relay, ["a", "wait"]))
    working.start()
    wait_until((job.folder / "waits").exists, "the function was not called")
    assert client.get("job", "counts", "a") == 1
    with pytest.raises(UnknownKeyError):
        client.get("job", "counts", "wait")
    (job.folder / "go on").touch()
    working.join()
    assert client.get_many("job", "counts", ["a", "wait"]) == {"a": 2, "wait": 1}


def test_killed_slot_is_a_clear_answer_and_comes_back_with_what_was_committed(
    job: QueryableJob, client: QueryableStateClient
) -> None:
    relay = job.relay()
    job.batch(relay, ["a"])
    job.batch(relay, ["a"])
    assert client.get("job", "counts", "a") == 2
    job.kill()
    with pytest.raises(RetryLaterError, match=r"slot of partition 0 .*Try again"):
        client.get("job", "counts", "a", timeout_s=0)
    with pytest.raises(RetryLaterError, match=r"slot of partition 0 .*Try again"):
        client.get("job", "counts", "a", timeout_s=0.2)
    assert files.is_batch_wanted(job.folder), "an idle job is asked for a batch"
    waiting = client.get_async("job", "counts", "a", timeout_s=30)
    job.batch(job.relay(), [])
    assert waiting.result() == 2
    assert client.get("job", "counts", "a") == 2


def test_slot_of_an_older_run_does_not_answer_once_a_newer_one_has_committed(
    job: QueryableJob, client: QueryableStateClient
) -> None:
    job.batch(job.relay(), ["a"])
    assert client.get("job", "counts", "a") == 1
    files.write_committed(job.folder, 2, job.epoch + 1)
    with pytest.raises(RetryLaterError, match="another slot"):
        client.get("job", "counts", "a", timeout_s=0)
    (job.folder / "run").write_text("2 running")
    job.settings = replace(job.settings, run_id="run-2", generation=2)
    job.batch(job.relay(), ["a"])
    assert client.get("job", "counts", "a") == 2


def test_thousands_of_look_ups_can_be_under_way_at_once(
    job: QueryableJob, client: QueryableStateClient
) -> None:
    words = [f"word {number}" for number in range(200)]
    job.batch(job.relay(), words * 2)
    asked = [client.get_async("job", "counts", word) for word in words * 10]
    assert {own.result() for own in asked} == {2}
    many = [*words, *(f"none {number}" for number in range(3000))]
    assert client.get_many("job", "counts", many) == dict.fromkeys(words, 2)


def test_flinks_way_to_ask(job: QueryableJob, client: QueryableStateClient) -> None:
    job.batch(job.relay(), ["a"])
    descriptor = ReducingStateDescriptor("any name", max, Types.LONG())
    future = client.get_kv_state("job", "counts", "a", Types.STRING(), descriptor)
    assert future.result().get() == 1  # type: ignore[attr-defined]
    missing = client.get_kv_state("job", "counts", "b", Types.STRING(), descriptor)
    assert isinstance(missing.exception(), UnknownKeyError)


def test_programs_with_asyncio_and_the_dispatcher_ask_without_threads(job: QueryableJob) -> None:
    job.batch(job.relay(), ["a", "42"])

    async def ask() -> None:
        async with AsyncQueryableStateClient.for_folder(job.folder) as client:
            assert await client.get("job", "counts", "a") == 1
            found = await asyncio.gather(*(client.get("job", "counts", "a") for _ in range(100)))
            assert set(found) == {1}
            assert await client.get_many("job", "counts", ["a", "b"]) == {"a": 1}
        proxy = StateProxy(timeout_s=30)
        assert await proxy.get(job.folder, "counts", "a") == {"found": True, "value": 1}
        assert await proxy.get(job.folder, "counts", '"42"') == {"found": True, "value": 1}
        assert await proxy.get(job.folder, "counts", "b") == {"found": False}
        for arguments, status in {("none", "a", None): 404, ("counts", "a", "e"): 400}.items():
            with pytest.raises(QueryableStateError) as problem:
                await proxy.get(job.folder, *arguments)
            assert status_of(problem.value) == status
        await proxy.close()
        job.kill()
        impatient = StateProxy(timeout_s=0.2)
        with pytest.raises(RetryLaterError) as retry:
            await impatient.get(job.folder, "counts", "a")
        assert status_of(retry.value) == 409
        await impatient.close()

    asyncio.run(ask())


class _Locations(BaseHTTPRequestHandler):
    """What a dispatcher says, as far as clients need it."""

    def do_GET(self) -> None:
        server: Any = self.server
        server.asked.append((self.path, self.headers["Authorization"]))
        path, _, query = self.path.partition("?")
        name = unquote(path.split("/")[4])
        try:
            lost = [int(own) for own in query.removeprefix("lost=").split("%2C") if own]
            code, content = 200, describe(server.folder, name, lost)
        except QueryableStateError as problem:
            code, content = status_of(problem), {"errors": [str(problem)]}
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, *_: Any) -> None:
        """Not here."""


def test_clients_ask_the_dispatcher_once_where_state_is(job: QueryableJob) -> None:
    job.batch(job.relay(), ["a"])
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Locations)
    server.folder, server.asked = job.folder, []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with QueryableStateClient("127.0.0.1", server.server_port, "secret") as client:
            assert [client.get("j1", "counts", "a") for _ in range(3)] == [1, 1, 1]
            assert server.asked == [("/jobs/j1/state/counts/location", "Bearer secret")]
            with pytest.raises(UnknownStateError, match="there are: counts"):
                client.get("j1", "a/b", "a")
            assert server.asked[-1][0] == "/jobs/j1/state/a%2Fb/location"
            job.kill()
            with pytest.raises(RetryLaterError, match="Try again"):
                client.get("j1", "counts", "a", timeout_s=0.1)
            assert ("/jobs/j1/state/counts/location?lost=0", "Bearer secret") in server.asked
            job.batch(job.relay(), ["a"])
            assert client.get("j1", "counts", "a", timeout_s=30) == 2
        server.shutdown()
    finally:
        server.server_close()
    with (
        QueryableStateClient("http://127.0.0.1", server.server_port) as client,
        pytest.raises(RetryLaterError, match=r"dispatcher at .* does not answer"),
    ):
        client.get("j1", "counts", "a", timeout_s=0)


def test_unknown_state_and_entries_of_what_is_no_map_are_errors(
    job: QueryableJob, client: QueryableStateClient
) -> None:
    job.batch(job.relay(), ["a"])
    with pytest.raises(UnknownStateError, match="no queryable state 'other'; there are: counts"):
        client.get("job", "other", "a")
    with pytest.raises(QueryableStateError, match="reducing state, which has no entries"):
        client.get("job", "counts", "a", entry="x")


def hear(sock: socket.socket) -> bytes:
    try:
        return sock.recv(1000)
    except ConnectionResetError:  # also an end
        return b""


STRANGE = [
    encode(MessageKind.HELLO, 1, {"token": "0" * 64}),
    encode(MessageKind.HELLO, 1, {"token": None}),
    encode(MessageKind.HELLO, 1, ["token"]),
    encode(MessageKind.GET, 1, {"state": "counts", "keys": ["a"]}),
    encode(MessageKind.HELLO, 1, {"token": "x" * MAX_HELLO_BYTES}),
    b"GET /jobs HTTP/1.1\r\nHost: x\r\n\r\n",
    bytes(100),
]


def test_strangers_are_told_nothing(job: QueryableJob, client: QueryableStateClient) -> None:
    job.batch(job.relay(), ["a"])
    for sent in STRANGE:
        with socket.create_connection(job.address(), timeout=10) as stranger:
            stranger.sendall(sent)
            assert hear(stranger) == b"", sent
    assert client.get("job", "counts", "a") == 1


def test_who_is_known_is_told_what_is_wrong_and_the_server_lives_on(
    job: QueryableJob, client: QueryableStateClient
) -> None:
    job.batch(job.relay(), ["a"])
    (own,) = files.read_locations(job.folder, 1)
    hello = encode(MessageKind.HELLO, 1, {"token": own.token})
    for wrong in (encode(MessageKind.GET, 2, {"keys": 1}), hello, b"rubbish" * 10):
        with socket.create_connection(job.address(), timeout=10) as known:
            known.sendall(hello)
            assert b'"partition":0' in hear(known)
            known.sendall(wrong)
            assert b"reason" in hear(known)
            assert hear(known) == b""
    with socket.create_connection(job.address(), timeout=10) as silent:
        assert client.get("job", "counts", "a") == 1
        silent.sendall(hello[:5])
        assert client.get("job", "counts", "a") == 1


def test_addresses_are_private_and_go_with_the_slot(job: QueryableJob) -> None:
    relay = job.relay()
    job.batch(relay, ["a"])
    path = files.location_path(job.folder, 0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    (own,) = files.read_locations(job.folder, 1)
    (pid,) = slots_of(job.folder)
    assert own.token not in Path(f"/proc/{pid}/cmdline").read_text()
    assert (own.host, own.pid, len(own.token)) == ("127.0.0.1", pid, 64)
    relay.close()
    (job.folder / "run").write_text("1 ended")
    wait_until(lambda: not path.exists(), "the address outlives its slot")


def test_ports_that_are_all_in_use_are_a_clear_error(job: QueryableJob) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SetupError, match=rf"none of the ports {port} on 127.0.0.1 is free"):
            job.batch(job.relay(queryable_ports=str(port)), ["a"])


class Plain(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("plain", Types.LONG()))

    def process_element(self, value: str, ctx: Any) -> None:
        self.state.update(1)


def test_job_without_queryable_state_serves_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "executor_pid", os.getpid)
    job = QueryableJob(tmp_path, Plain())
    relay = job.relay()
    job.run(relay, ["a"])
    assert not files.has_queryable_state(tmp_path)
    relay.close()
    (tmp_path / "run").write_text("1 ended")
    wait_until(lambda: not slots_of(tmp_path), "slots outlive their job")
