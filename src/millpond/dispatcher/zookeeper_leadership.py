"""Leadership through ZooKeeper, for dispatchers on several machines.

    ROOT/CLUSTER/epoch      {"format": 1, "epoch": 3}; its version grows with every term
    ROOT/CLUSTER/leader     {"format": 1, "epoch": 3, "address": "http://..."}; lives as long as the session
    ROOT/CLUSTER/jobs/NAME  {"format": 1, "epoch": 3, "content": {...}}; pointers only, never more

A term begins with one transaction, which increments the epoch (compare and set) and creates the leader's node
(only if there is none). A fenced write is one transaction, too: it checks that the leader's node exists and
that the epoch's version is that of the term. So whatever an old leader sends is refused as soon as its
session is over or another term has begun, however late the old leader notices.

When the connection breaks, this side regards the term as over at once, although the session may live on for a
while, because the fence cannot be asked. If the connection comes back in time, the leader succeeds itself
with a new epoch.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from millpond.dispatcher.kazoo_types import AsyncResult, Client, NodeStat, Transaction
from millpond.dispatcher.leadership import (
    FORMAT,
    Participant,
    Term,
    check_name,
    decode_epoch,
    decode_pointer,
    encode_pointer,
)
from millpond.dispatcher.messages import Json
from millpond.errors import LeadershipError, LeadershipLost, SetupError

try:
    from kazoo.client import KazooClient  # type: ignore[import-untyped]
    from kazoo.exceptions import (  # type: ignore[import-untyped]
        BadVersionError,
        KazooException,
        NodeExistsError,
        NoNodeError,
        RolledBackError,
        RuntimeInconsistency,
    )
    from kazoo.handlers.threading import KazooTimeoutError  # type: ignore[import-untyped]
    from kazoo.protocol.states import KazooState, KeeperState  # type: ignore[import-untyped]
except ImportError:
    raise SetupError(
        "Leadership through ZooKeeper needs the package kazoo on every machine that runs a dispatcher: "
        "pip install 'millpond[cluster]'."
    ) from None

_log = logging.getLogger(__name__)
# kazoo logs a warning for every attempt to connect; one message of ours for the whole time is enough.
_client_log = logging.getLogger(f"{__name__}.client")
_client_log.setLevel(logging.ERROR)

_CONNECTION_RETRY = {"max_tries": -1, "delay": 0.1, "max_delay": 1.0}
_ENDED = (KeeperState.CLOSED, KeeperState.AUTH_FAILED)
_START_S = 2.0  # until then, a client may not have begun to connect
_PATIENCE_S = 1.0  # a shorter absence is not worth a message
_FAILURES = (KazooException, KazooTimeoutError)
_T = TypeVar("_T")


@dataclass(frozen=True)
class _ZooKeeperTerm(Term):
    epoch_version: int
    session: int


class ZooKeeperLeadership(Participant[_ZooKeeperTerm]):
    """Leadership through ZooKeeper. While ZooKeeper is unreachable, even at the start, nobody leads.

    `hosts` is "host:port,host:port". A leader that dies without closing is replaced after
    `session_timeout_s`, which the server may adjust to between 2 and 20 of its ticks. No call waits longer
    than `session_timeout_s` for an answer."""

    def __init__(
        self,
        hosts: str,
        root: str = "/millpond",
        cluster_id: str = "default",
        session_timeout_s: float = 10,
    ) -> None:
        super().__init__(standby_check_s=1.0, leader_check_s=session_timeout_s)
        check_name(cluster_id)
        self._hosts = hosts
        self._timeout_s = session_timeout_s
        base = f"/{root.strip('/')}/{cluster_id}".replace("//", "/")
        self._epoch_path = f"{base}/epoch"
        self._leader_path = f"{base}/leader"
        self._jobs_path = f"{base}/jobs"
        # Guards the term and the next two fields. Held for moments only: kazoo's thread takes it, too.
        self._mutex = threading.Lock()
        self._losses = 0  # how often the connection has broken
        self._leader: str | None = None
        self._prepared = False
        self._started_s: float | None = None
        self._away_since_s: float | None = None
        self._client = self._new_client()

    # What anybody may ask

    def leader_address(self) -> str | None:
        return self._leader

    def pointers(self) -> dict[str, Json]:
        client = self._client
        if not client.connected:
            raise self._away()
        try:
            names = self._answer(client.get_children_async(self._jobs_path))
            asked = {name: client.get_async(f"{self._jobs_path}/{name}") for name in sorted(names)}
        except NoNodeError:  # nobody has ever led
            return {}
        except _FAILURES as problem:
            raise self._away(problem) from None
        found = {}
        for name, answer in asked.items():
            try:
                data, _ = self._answer(answer)
            except NoNodeError:  # it has just been removed
                continue
            except _FAILURES as problem:
                raise self._away(problem) from None
            found[name] = decode_pointer(data, f"{self._jobs_path}/{name}")
        return found

    # What only a leader may do

    def confirm(self) -> int:
        term = self._leading()
        self._fenced(term)
        return term.epoch

    def put_pointer(self, name: str, content: Json, epoch: int | None = None) -> None:
        term = self._leading(epoch)
        data = encode_pointer(name, content, term.epoch)
        path = f"{self._jobs_path}/{name}"
        problem = self._fenced(term, lambda transaction: transaction.set_data(path, data))
        if isinstance(problem, NoNodeError):
            problem = self._fenced(term, lambda transaction: transaction.create(path, data))
        if isinstance(problem, NodeExistsError):  # another thread of this leader has created it
            problem = self._fenced(term, lambda transaction: transaction.set_data(path, data))
        if problem is not None:
            raise LeadershipError(f"Cannot write the pointer '{name}': {problem!r} at {path}.")

    def remove_pointer(self, name: str, epoch: int | None = None) -> None:
        check_name(name)
        term = self._leading(epoch)
        path = f"{self._jobs_path}/{name}"
        problem = self._fenced(term, lambda transaction: transaction.delete(path))
        if isinstance(problem, NoNodeError):
            self._fenced(term)
        elif problem is not None:
            raise LeadershipError(f"Cannot remove the pointer '{name}': {problem!r} at {path}.")

    def _fenced(
        self,
        term: _ZooKeeperTerm,
        add: Callable[[Transaction], None] = lambda transaction: None,
    ) -> Exception | None:
        """Do what `add` adds to a transaction, and return None, or why ZooKeeper refuses it. Raise
        LeadershipLost if the term is over."""
        transaction = self._client.transaction()
        transaction.check(self._leader_path, 0)
        transaction.check(self._epoch_path, term.epoch_version)
        add(transaction)
        try:
            answers = self._answer(transaction.commit_async())
        except _FAILURES as problem:
            # It is unknown whether this was done. Giving up the term makes sure that it is not done later.
            self._give_up(term)
            raise LeadershipLost(
                f"ZooKeeper at {self._hosts} does not answer ({problem!r}), so this dispatcher can no longer "
                f"lead; its epoch was {term.epoch}."
            ) from None
        refusal = _refusal(answers)
        if refusal is not None and refusal in answers[:2]:
            self._give_up(term)
            raise LeadershipLost(
                "Another dispatcher leads, or this dispatcher's session is over; its epoch was "
                f"{term.epoch}."
            )
        return refusal

    def _give_up(self, term: _ZooKeeperTerm) -> None:
        with self._mutex:
            if self._term is term:
                self._term = self._leader = None
        self._wake.set()

    # The participant's thread

    def _try_to_lead(self) -> _ZooKeeperTerm | None:
        losses = self._losses
        client = self._client
        if not client.connected:
            self._wait_for_zookeeper()
            return None
        self._away_since_s = None
        try:
            return self._campaign(client, losses)
        except _FAILURES as problem:
            if self._losses == losses:  # otherwise the lost connection explains the failure
                raise LeadershipError(f"ZooKeeper at {self._hosts} answers {problem!r}.") from None
            return None

    def _campaign(self, client: Client, losses: int) -> _ZooKeeperTerm | None:
        if not self._prepared:
            self._prepare(client)
        # The epoch is read first: if the leader changes after that, the transaction finds another version.
        epoch, epoch_stat = self._read(self._answer(client.get_async(self._epoch_path)))
        node: tuple[bytes, NodeStat] | None = None
        try:
            node = self._answer(client.get_async(self._leader_path, watch=self._changed))
        except NoNodeError:
            # Watch for the node to appear, because another dispatcher may be quicker.
            asked = client.exists_async(self._leader_path, watch=self._changed)
            if self._answer(asked) is not None:
                self._wake.set()
                return None
        client_id = client.client_id
        session = None if client_id is None else client_id[0]
        is_ours = False
        if node is not None:
            leader, stat = self._read(node)
            is_ours = stat.ephemeralOwner == session
            if not is_ours:
                self._follow(leader.get("address"), losses)
                return None
        term = self._begin(client, epoch["epoch"] + 1, epoch_stat.version, is_ours, session)
        if term is None:  # another dispatcher was quicker
            self._wake.set()
            return None
        with self._mutex:
            if self._losses != losses or self._closing.is_set():
                # The next attempt finds that the node is ours; otherwise it ends with the session.
                self._wake.set()
                return None
            self._term, self._leader = term, self._address
        return term

    def _begin(
        self, client: Client, epoch: int, version: int, is_ours: bool, session: int | None
    ) -> _ZooKeeperTerm | None:
        transaction = client.transaction()
        counted = json.dumps({"format": FORMAT, "epoch": epoch}).encode()
        transaction.set_data(self._epoch_path, counted, version)
        if is_ours:  # from a term before the connection broke
            transaction.delete(self._leader_path)
        leader = json.dumps({"format": FORMAT, "epoch": epoch, "address": self._address}).encode()
        transaction.create(self._leader_path, leader, ephemeral=True)
        answers = self._answer(transaction.commit_async())
        problem = _refusal(answers)
        if problem is None and session is not None:
            return _ZooKeeperTerm(epoch, answers[0].version, session)
        if problem is None or isinstance(problem, BadVersionError | NodeExistsError | NoNodeError):
            return None
        raise LeadershipError(
            f"ZooKeeper at {self._hosts} does not let any dispatcher lead: {problem!r}."
        )

    def _follow(self, address: object, losses: int) -> None:
        with self._mutex:
            if self._losses == losses:
                self._leader = address if isinstance(address, str) else None

    def _check(self, term: _ZooKeeperTerm) -> None:
        """Give up the term if the leader's node is not ours any more; else watch the node, in case somebody
        removes it."""
        try:
            answer = self._answer(self._client.get_async(self._leader_path, watch=self._changed))
            leader, stat = self._read(answer)
            if stat.ephemeralOwner != term.session or leader.get("epoch") != term.epoch:
                self._give_up(term)
        except _FAILURES:
            self._give_up(term)

    def _end(self, term: _ZooKeeperTerm) -> None:
        with self._mutex:
            if self._term is not term:
                return
            self._term = self._leader = None
        self._wake.set()
        transaction = self._client.transaction()
        transaction.check(self._epoch_path, term.epoch_version)
        transaction.delete(self._leader_path)
        try:
            self._answer(transaction.commit_async())
        except _FAILURES as problem:  # the term then ends with the session
            _log.info("Could not end the term in ZooKeeper at %s: %r", self._hosts, problem)

    def _leave(self) -> None:
        self._leader = None
        _close_client(self._client)

    # Connection and session

    def _new_client(self) -> Client:
        client: Client = KazooClient(
            self._hosts,
            timeout=self._timeout_s,
            connection_retry=_CONNECTION_RETRY,
            logger=_client_log,
        )
        client.add_listener(self._connection_changed)
        return client

    def _connection_changed(self, state: str) -> None:
        """Note that the connection changed. kazoo calls this in its own thread, which must not wait."""
        if state != KazooState.CONNECTED:
            with self._mutex:
                self._losses += 1
                self._term = self._leader = None
        self._wake.set()

    def _changed(self, _: object) -> None:
        self._wake.set()

    def _wait_for_zookeeper(self) -> None:
        """Start the client, or replace one that has ended by itself, and log now and then that ZooKeeper is
        unreachable."""
        now_s = time.monotonic()
        if self._started_s is None:
            self._started_s = now_s
            self._client.start_async()
        elif now_s - self._started_s > _START_S and self._client.client_state in _ENDED:
            _close_client(self._client)
            self._client, self._started_s = self._new_client(), None
            self._wake.set()
        if self._away_since_s is None:
            self._away_since_s = now_s
        elif now_s - self._away_since_s >= _PATIENCE_S:
            self._complain(
                f"ZooKeeper at {self._hosts} does not answer. Until it does, this dispatcher stands by and "
                "does not know of any leader."
            )

    def _prepare(self, client: Client) -> None:
        parts = self._jobs_path.strip("/").split("/")
        for count in range(1, len(parts) + 1):
            self._create(client, "/" + "/".join(parts[:count]), b"")
        self._create(client, self._epoch_path, json.dumps({"format": FORMAT, "epoch": 0}).encode())
        self._prepared = True

    def _create(self, client: Client, path: str, data: bytes) -> None:
        with suppress(NodeExistsError):
            self._answer(client.create_async(path, data))

    def _read(self, node: tuple[bytes, NodeStat]) -> tuple[Json, NodeStat]:
        data, stat = node
        location = f"A node beside {self._jobs_path} of ZooKeeper at {self._hosts}"
        return decode_epoch(data, location), stat

    def _answer(self, asked: AsyncResult[_T]) -> _T:
        return asked.get(timeout=self._timeout_s)

    def _away(self, problem: Exception | None = None) -> LeadershipError:
        return LeadershipError(
            f"ZooKeeper at {self._hosts} does not answer{f' ({problem!r})' if problem else ''}. "
            "Is it running? Try again when it is."
        )


def _refusal(answers: Sequence[object]) -> Exception | None:
    """Return why a transaction was refused, or None; the other answers are only consequences of it."""
    for answer in answers:
        if isinstance(answer, Exception) and not isinstance(
            answer, RolledBackError | RuntimeInconsistency
        ):
            return answer
    return None


def _close_client(client: Client) -> None:
    try:
        client.stop()
        client.close()
    except Exception as problem:  # the session then ends by its time-out
        _log.info("Could not close the connection to ZooKeeper: %r", problem)
