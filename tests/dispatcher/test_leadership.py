"""Leadership among dispatchers (O5): one suite over both kinds, with real processes and a real ZooKeeper."""

from __future__ import annotations

import itertools
import json
import logging
import os
import random
import re
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.connection import _CONNECTION_DROP

from millpond.common import Configuration
from millpond.dispatcher.leadership import FileLeadership, Leadership
from millpond.dispatcher.open_leadership import (
    HA_CLUSTER_ID,
    HA_QUORUM,
    HA_ROOT,
    HA_SESSION_TIMEOUT_MS,
    HA_TYPE,
    open_leadership,
)
from millpond.dispatcher.zookeeper_leadership import ZooKeeperLeadership
from millpond.errors import LeadershipError, LeadershipLost, ProgramError
from tests.dispatcher.contenders import (
    SESSION_TIMEOUT_S,
    Contender,
    ContenderProcess,
    await_leader,
    open_contender,
)
from tests.servers import wait_until
from tests.zookeeper_server import ZooKeeperServer, zookeeper_server


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with zookeeper_server(tmp_path_factory.mktemp("zookeeper")) as hosts:
        yield hosts


@dataclass
class Field:
    """Where contenders meet; ends them all."""

    kind: str
    where: str
    _open: list[Any] = field(default_factory=list)

    def contender(self, address: str, **arguments: Any) -> Contender:
        contender = Contender(open_contender(self.kind, self.where), address, **arguments)
        self._open.append(contender.leadership.close)
        return contender

    def process(self, address: str) -> ContenderProcess:
        contender = ContenderProcess(self.kind, self.where, address)
        self._open.append(contender.end)
        return contender

    def end(self) -> None:
        for end in self._open:
            end()


@pytest.fixture
def file_field(tmp_path: Path) -> Iterator[Field]:
    made = Field("file", str(tmp_path / "leadership"))
    yield made
    made.end()


@pytest.fixture
def zookeeper_field(zookeeper: str) -> Iterator[Field]:
    made = Field("zookeeper", f"{zookeeper}/{uuid.uuid4().hex}")
    yield made
    made.end()


@pytest.fixture(params=["file", "zookeeper"])
def ground(request: pytest.FixtureRequest) -> Field:
    found: Field = request.getfixturevalue(f"{request.param}_field")
    return found


def break_connection(leadership: Leadership) -> None:
    """As kazoo's own tests do it."""
    client = client_of(leadership)
    client._call(_CONNECTION_DROP, client.handler.async_result())


def end_session(leadership: Leadership) -> None:
    """On the server: whoever knows a session's id and password may take it over and close it."""
    client = client_of(leadership)
    session = client.client_id
    if session is not None:
        double = KazooClient(",".join(f"{host}:{port}" for host, port in client.hosts))
        double._session_id, double._session_passwd = session
        double.start()
        double.stop()
        double.close()


def client_of(leadership: Leadership) -> Any:
    assert isinstance(leadership, ZooKeeperLeadership)
    return leadership._client


# Leading and standing by


def test_one_leads_and_the_other_stands_by(ground: Field) -> None:
    """O5: the standby knows who leads and what there is, but cannot write."""
    first = ground.contender("http://first:1")
    epoch = first.await_grant()
    second = ground.contender("http://second:2")
    await_leader(second.leadership, "http://first:1")
    assert first.leadership.leader_address() == "http://first:1"
    assert first.leadership.epoch == first.leadership.confirm() == epoch
    first.leadership.put_pointer("a", {"folder": "/x", "n": 1})
    assert second.leadership.epoch is None
    assert second.leadership.pointers() == {"a": {"folder": "/x", "n": 1}}
    for write in (
        lambda: second.leadership.put_pointer("a", {}),
        lambda: second.leadership.remove_pointer("a"),
        second.leadership.confirm,
    ):
        with pytest.raises(LeadershipLost):
            write()
    assert second.told == []
    assert second.leadership.pointers() == {"a": {"folder": "/x", "n": 1}}


def test_standby_follows_a_leader_that_closes(ground: Field) -> None:
    """O5: with a higher epoch and all pointers; the old leader cannot write."""
    first = ground.contender("http://first:1")
    epoch = first.await_grant()
    second = ground.contender("http://second:2")
    await_leader(second.leadership, "http://first:1")
    first.leadership.put_pointer("a", {"n": 1})
    first.leadership.put_pointer("b", {"n": 2})
    first.leadership.remove_pointer("b")
    first.leadership.close()
    first.leadership.close()
    assert second.await_grant() > epoch
    assert second.leadership.leader_address() == "http://second:2"
    assert second.leadership.pointers() == {"a": {"n": 1}}
    assert first.told == [epoch, None]
    assert first.leadership.epoch is None
    with pytest.raises(LeadershipLost):
        first.leadership.put_pointer("a", {"n": 3})
    assert second.leadership.pointers() == {"a": {"n": 1}}


def test_epoch_grows_although_everybody_has_left(ground: Field) -> None:
    epochs = []
    for _ in range(3):
        alone = ground.contender("http://alone:1")
        epochs.append(alone.await_grant())
        alone.leadership.close()
    assert epochs == sorted(set(epochs))


@pytest.mark.faults
def test_killed_leader_is_followed(ground: Field) -> None:
    """O5: kill -9; nobody tells anybody anything."""
    leader = ground.process("http://first:1")
    epoch = int(leader.await_line("granted").split()[1])
    leader.send('put a {"n":1}')
    assert "put" in leader.await_line("answer")
    standby = ground.contender("http://second:2")
    await_leader(standby.leadership, "http://first:1")
    began_s = time.monotonic()
    os.kill(leader.process.pid, signal.SIGKILL)
    assert standby.await_grant() > epoch
    print(f"{ground.kind}: followed {time.monotonic() - began_s:.2f} s after kill -9")
    assert standby.leadership.pointers() == {"a": {"n": 1}}


@pytest.mark.faults
def test_leader_that_slept_past_its_session_cannot_write(zookeeper_field: Field) -> None:
    """O5: it still believes that it leads when it wakes up; what the new leader wrote is intact."""
    leader = zookeeper_field.process("http://first:1")
    epoch = int(leader.await_line("granted").split()[1])
    standby = zookeeper_field.contender("http://second:2")
    await_leader(standby.leadership, "http://first:1")
    os.kill(leader.process.pid, signal.SIGSTOP)
    try:
        assert standby.await_grant() > epoch
        standby.leadership.put_pointer("a", {"by": "second"})
        leader.send('put a {"by":"first"}')  # waits for it in its pipe
        leader.send('put b {"by":"first"}')
    finally:
        os.kill(leader.process.pid, signal.SIGCONT)
    assert leader.await_line("answer").startswith("answer lost")
    assert leader.await_line("answer").startswith("answer lost")
    assert standby.leadership.pointers() == {"a": {"by": "second"}}
    assert standby.leadership.confirm() == standby.leadership.epoch


@pytest.mark.faults
def test_sleeping_leader_keeps_the_lock(file_field: Field) -> None:
    """O5: nobody can lead beside it, so it may go on when it wakes up."""
    leader = file_field.process("http://first:1")
    leader.await_line("granted")
    os.kill(leader.process.pid, signal.SIGSTOP)
    try:
        standby = file_field.contender("http://second:2")
        await_leader(standby.leadership, "http://first:1")
        leader.send('put a {"by":"first"}')
    finally:
        os.kill(leader.process.pid, signal.SIGCONT)
    assert leader.await_line("answer").startswith("answer put")
    assert standby.told == []
    assert standby.leadership.pointers() == {"a": {"by": "first"}}


def test_leader_that_cannot_work_lets_another_lead(
    ground: Field, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(epoch: int) -> None:
        raise RuntimeError("the storage is full")

    first = ground.contender("http://first:1", on_grant=fail)
    first.await_grant()
    second = ground.contender("http://second:2")
    second.await_grant()
    wait_until(lambda: first.told.count(None) >= 1, "the term was not revoked")
    assert first.told[1] is None
    assert "the storage is full" in caplog.text


def test_close_in_a_callback_ends_the_term(ground: Field) -> None:
    made: list[Leadership] = []
    ready = threading.Event()

    def leave(epoch: int) -> None:
        ready.wait()
        made[0].close()

    first = ground.contender("http://first:1", on_grant=leave)
    made.append(first.leadership)
    ready.set()
    first.await_revoked()
    assert ground.contender("http://second:2").await_grant() > first.await_grant()


# Pointers


def test_pointers_are_replaced_and_removed(ground: Field) -> None:
    leader = ground.contender("http://first:1").leadership
    wait_until(lambda: leader.epoch is not None, "nobody leads")
    leader.put_pointer("a", {"n": 1})
    leader.put_pointer("a", {"n": 2})
    leader.put_pointer("b.c-d_e", {"umlaut": "ä"})
    leader.remove_pointer("nothing")
    assert leader.pointers() == {"a": {"n": 2}, "b.c-d_e": {"umlaut": "ä"}}
    leader.remove_pointer("a")
    assert leader.pointers() == {"b.c-d_e": {"umlaut": "ä"}}


def test_bad_and_large_pointers_are_refused(ground: Field) -> None:
    leader = ground.contender("http://first:1").leadership
    wait_until(lambda: leader.epoch is not None, "nobody leads")
    for name in ("", "../a", "a/b", ".hidden", "-a", "a" * 201, "a\n"):
        with pytest.raises(LeadershipError, match="cannot be the name of a pointer"):
            leader.put_pointer(name, {})
        with pytest.raises(LeadershipError, match="cannot be the name of a pointer"):
            leader.remove_pointer(name)
    with pytest.raises(LeadershipError, match="bytes; 1024 are allowed"):
        leader.put_pointer("a", {"text": "x" * 1024})
    assert leader.epoch is not None
    assert leader.pointers() == {}


def test_decision_of_an_earlier_term_is_not_written(ground: Field) -> None:
    """O5: the same dispatcher leads, but another one may have led in between."""
    leader = ground.contender("http://first:1")
    epoch = leader.await_grant()
    leader.leadership.put_pointer("a", {"n": 1}, epoch)
    for other in (epoch - 1, epoch + 1):
        with pytest.raises(LeadershipLost, match="is over"):
            leader.leadership.put_pointer("a", {"n": 2}, other)
        with pytest.raises(LeadershipLost, match="is over"):
            leader.leadership.remove_pointer("a", other)
    assert leader.leadership.pointers() == {"a": {"n": 1}}
    leader.leadership.remove_pointer("a", epoch)
    assert leader.leadership.pointers() == {}


# The fence of files


@pytest.mark.parametrize("how", ["epoch", "lock", "damage"])
def test_file_fence_notices_that_the_folder_is_anothers(file_field: Field, how: str) -> None:
    """O5: what cannot happen on one kernel, but on a file system that loses locks."""
    first = file_field.contender("http://first:1")
    epoch = first.await_grant()
    folder = Path(file_field.where)
    if how == "epoch":
        (folder / "leader.json").write_text(json.dumps({"format": 1, "epoch": epoch + 5}))
    elif how == "lock":
        (folder / "leader.lock").rename(folder / "lost")
    else:
        (folder / "leader.json").write_text("{")
    with pytest.raises(LeadershipLost):
        first.leadership.put_pointer("a", {})
    first.await_revoked()
    assert first.leadership.pointers() == {}
    if how != "damage":
        assert first.await_grant(above=epoch) > epoch + (5 if how == "epoch" else 0)


def test_damaged_epoch_is_not_counted_from_zero_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "leader.json").write_text('{"format": 1}')
    contender = Contender(FileLeadership(tmp_path), "http://first:1")
    wait_until(lambda: "leader.json is damaged" in caplog.text, "nobody complains")
    contender.leadership.close()
    assert contender.told == []
    assert (tmp_path / "leader.json").read_text() == '{"format": 1}'


def test_files_are_private(file_field: Field) -> None:
    first = file_field.contender("http://first:1")
    first.await_grant()
    first.leadership.put_pointer("a", {})
    for path in [Path(file_field.where), *Path(file_field.where).rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


# The fence and the session of ZooKeeper


def test_fence_is_in_the_transaction(zookeeper_field: Field) -> None:
    """O5: whatever an old leader believes, ZooKeeper refuses what it writes."""
    first = zookeeper_field.contender("http://first:1")
    epoch = first.await_grant()
    old = first.leadership._term  # type: ignore[attr-defined]
    second = zookeeper_field.contender("http://second:2")
    await_leader(second.leadership, "http://first:1")
    end_session(first.leadership)
    assert second.await_grant() > epoch
    wait_until(lambda: client_of(first.leadership).connected, "no new session")
    for write in (
        lambda: first.leadership.put_pointer("a", {"by": "first"}),
        lambda: first.leadership.remove_pointer("b"),
        first.leadership.confirm,
    ):
        second.leadership.put_pointer("b", {"by": "second"})
        first.leadership._term = old  # type: ignore[attr-defined]
        with pytest.raises(LeadershipLost, match="Another dispatcher leads"):
            write()
        assert first.leadership.epoch is None
    assert second.leadership.pointers() == {"b": {"by": "second"}}


def test_fence_is_shut_while_nobody_leads(zookeeper_field: Field) -> None:
    """O5: the epoch is still the old leader's, but its node is gone."""
    first = zookeeper_field.contender("http://first:1")
    first.await_grant()
    old = first.leadership._term  # type: ignore[attr-defined]
    first.leadership.close()
    ghost = open_contender(zookeeper_field.kind, zookeeper_field.where)
    client_of(ghost).start()
    try:
        ghost._term = old  # type: ignore[attr-defined]
        with pytest.raises(LeadershipLost, match="session is over"):
            ghost.put_pointer("a", {})
        assert ghost.pointers() == {}
    finally:
        ghost.close()


def test_term_is_not_begun_with_an_epoch_that_another_one_had(zookeeper_field: Field) -> None:
    """O5: it read the epoch; then another one led and left; now it tries to count up what it read."""
    first = zookeeper_field.contender("http://first:1")
    epoch = first.await_grant()
    version = first.leadership._term.epoch_version  # type: ignore[attr-defined]
    first.leadership.close()
    late = open_contender(zookeeper_field.kind, zookeeper_field.where)
    assert isinstance(late, ZooKeeperLeadership)
    client_of(late).start()
    try:
        session = client_of(late).client_id[0]
        assert late._begin(client_of(late), epoch, version - 1, False, session) is None
        begun = late._begin(client_of(late), epoch + 1, version, False, session)
        assert begun is not None and begun.epoch == epoch + 1
    finally:
        late.close()


def test_term_that_was_over_before_it_was_known_is_not_granted(
    zookeeper_field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O5: the connection breaks between ZooKeeper's answer and the grant; the next term counts."""
    begin, lost = ZooKeeperLeadership._begin, []

    def begin_and_break(own: ZooKeeperLeadership, *arguments: Any) -> Any:
        term = begin(own, *arguments)
        if not lost and term is not None:
            lost.append(term.epoch)
            losses = own._losses
            break_connection(own)
            wait_until(lambda: own._losses > losses, "the connection did not break")
        return term

    monkeypatch.setattr(ZooKeeperLeadership, "_begin", begin_and_break)
    first = zookeeper_field.contender("http://first:1")
    assert first.await_grant() > lost[0]
    assert first.told == [first.leadership.confirm()]


@pytest.mark.parametrize("disturb", [break_connection, end_session])
def test_leader_whose_connection_breaks_leads_again_with_a_new_epoch(
    zookeeper_field: Field, disturb: Callable[[Leadership], None]
) -> None:
    """O5: not leading while ZooKeeper cannot be asked; after that, a new term."""
    first = zookeeper_field.contender("http://first:1")
    epoch = first.await_grant()
    first.leadership.put_pointer("a", {"n": 1})
    disturb(first.leadership)
    first.await_revoked()
    again = first.await_grant(above=epoch)
    assert first.told == [epoch, None, again]
    assert first.leadership.pointers() == {"a": {"n": 1}}
    first.leadership.put_pointer("a", {"n": 2})
    assert first.leadership.confirm() == again


def test_leader_whose_node_is_removed_leads_again(zookeeper_field: Field) -> None:
    first = zookeeper_field.contender("http://first:1")
    epoch = first.await_grant()
    hosts, _, root = zookeeper_field.where.partition("/")
    operator = KazooClient(hosts)
    operator.start()
    try:
        wait_until(lambda: operator.exists(f"/{root}/default/leader"), "no leader's node")
        operator.delete(f"/{root}/default/leader")
    finally:
        operator.stop()
        operator.close()
    first.await_revoked()
    assert first.await_grant(above=epoch) > epoch


@pytest.mark.faults
def test_leadership_comes_back_with_zookeeper(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """O5: away at the start; there; killed and restarted on its data: a higher epoch, all pointers."""
    server = ZooKeeperServer(tmp_path)
    early = ZooKeeperLeadership(server.hosts, session_timeout_s=SESSION_TIMEOUT_S)
    contender = Contender(early, "http://first:1")
    try:
        wait_until(lambda: "does not answer" in caplog.text, "nobody complains")
        assert early.epoch is None and early.leader_address() is None
        with pytest.raises(LeadershipError, match="does not answer"):
            early.pointers()
        server.start()
        epoch = contender.await_grant()
        early.put_pointer("a", {"n": 1})
        early.put_pointer("b", {"n": 2})
        server.kill()
        with pytest.raises(LeadershipLost):
            early.put_pointer("c", {"n": 3})
        contender.await_revoked()
        assert early.epoch is None and early.leader_address() is None
        server.start()
        assert contender.await_grant(above=epoch) > epoch
        assert {name: early.pointers()[name] for name in "ab"} == {"a": {"n": 1}, "b": {"n": 2}}
        assert early.leader_address() == "http://first:1"
    finally:
        server.stop()
        began_s = time.monotonic()
        early.close()
    assert time.monotonic() - began_s < 60, "closing waits for a server that is away"


# All at once


@dataclass(frozen=True)
class Write:
    began: int
    ended: int
    epoch: int


def test_epochs_never_meet_whatever_happens(ground: Field) -> None:
    """O5: contenders come and go at random; accepted writes are in the order of their epochs."""
    chance = random.Random(7)
    ticks = itertools.count()
    writes: list[Write] = []
    granted: list[int] = []
    seen: list[int] = []
    over = threading.Event()

    def write_always(leadership: Leadership) -> None:
        while not over.is_set():
            epoch = leadership.epoch or 0
            began = next(ticks)
            try:
                leadership.put_pointer("job", {"epoch": epoch}, epoch)
                writes.append(Write(began, next(ticks), epoch))
            except LeadershipLost:
                over.wait(0.005)

    def look_always(leadership: Leadership) -> None:
        while not over.is_set():
            try:
                seen.append(leadership.pointers().get("job", {"epoch": 0})["epoch"])
            except LeadershipError:
                over.wait(0.005)

    def decline(epoch: int) -> None:
        granted.append(epoch)
        raise RuntimeError("an observer does not lead")

    threads: list[threading.Thread] = []

    def spawn(work: Callable[[Leadership], None], leadership: Leadership) -> None:
        threads.append(threading.Thread(target=work, args=(leadership,)))
        threads[-1].start()

    def enter() -> Contender:
        made = ground.contender(f"http://{next(ticks)}:1", on_grant=granted.append)
        spawn(write_always, made.leadership)
        return made

    present = [enter() for _ in range(3)]
    spawn(look_always, ground.contender("http://observer:1", on_grant=decline).leadership)
    try:
        deadline_s = time.monotonic() + 60
        while len(granted) < 15:
            assert time.monotonic() < deadline_s, granted
            time.sleep(chance.uniform(0, 0.1))
            leaders = [one for one in present if one.leadership.epoch is not None]
            victim = chance.choice(leaders or present)
            if ground.kind == "zookeeper" and chance.random() < 0.5:
                chance.choice([break_connection, end_session])(victim.leadership)
            else:
                present.remove(victim)
                victim.leadership.close()
                present.append(enter())
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert len(set(granted)) == len(granted), "two terms had the same epoch"
    assert granted == sorted(granted)
    assert seen == sorted(seen), "a later look showed an older leader's write"
    assert writes
    highest_ended = 0
    ends = iter(sorted(writes, key=lambda write: write.ended))
    newest = next(ends)
    for write in sorted(writes, key=lambda write: write.began):
        while newest.ended < write.began:
            highest_ended = max(highest_ended, newest.epoch)
            newest = next(ends)
        assert write.epoch >= highest_ended, "an older leader wrote after a newer one"


# Settings


def test_settings_choose_the_leadership(tmp_path: Path) -> None:
    def opened(**settings: Any) -> Leadership:
        keys = {f"high-availability.{key.replace('__', '.')}": v for key, v in settings.items()}
        return open_leadership(Configuration.from_dict(keys), tmp_path)

    assert isinstance(opened(), FileLeadership)
    chosen = opened(type="zookeeper", zookeeper__quorum="127.0.0.1:1")
    assert isinstance(chosen, ZooKeeperLeadership)
    chosen.close()
    with pytest.raises(ProgramError, match=r"high-availability\.zookeeper\.quorum"):
        opened(type="zookeeper")
    with pytest.raises(ProgramError, match="must be one of none, zookeeper"):
        opened(type="kubernetes")


def test_guide_lists_the_settings() -> None:
    page = Path(__file__).parents[2] / "docs" / "guide" / "high-availability.md"
    listed = re.findall(r"^\| `([\w.-]+)` \|(?: `(.*?)`)? \|", page.read_text(), re.MULTILINE)
    known = [HA_TYPE, HA_QUORUM, HA_CLUSTER_ID, HA_ROOT, HA_SESSION_TIMEOUT_MS]
    assert dict(listed) == {own.key: str(own.default or "") for own in known}


def test_leadership_starts_once(file_field: Field) -> None:
    first = file_field.contender("http://first:1")
    with pytest.raises(LeadershipError, match="only once"):
        first.leadership.start("http://first:1", lambda epoch: None, lambda: None)


def test_complaints_are_not_repeated(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    contender = FileLeadership(tmp_path)
    with caplog.at_level(logging.WARNING):
        contender._complain("it rains")
        contender._complain("it rains")
    assert caplog.text.count("it rains") == 1
