"""Exactly-once output into a system that has transactions: the base of users' own sinks (E43, C43)."""

from __future__ import annotations

import hashlib
import uuid
from abc import abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from millpond.datastream.connectors.base import Epoch, SinkWriter, TwoPhaseSink
from millpond.datastream.functions import SinkContext


class TwoPhaseCommitSink(TwoPhaseSink):
    """A transaction per epoch and subtask that has records, named by an id.

    On a worker: `begin_transaction`, `invoke` for every record, `pre_commit`. On the driver, when the epoch
    counts: `commit_transaction`. After a failure what was pre-committed by the newest epoch that counts is
    committed (again, perhaps), and all others that `open_transactions` knows of are aborted."""

    @abstractmethod
    def begin_transaction(self, transaction_id: str) -> Any:
        """On a worker: a new transaction, as `invoke` and `pre_commit` get it."""

    @abstractmethod
    def invoke(self, transaction: Any, value: Any, context: SinkContext) -> None: ...

    @abstractmethod
    def pre_commit(self, transaction: Any) -> None:
        """Make it durable, so that it can be committed by its id, by another process, at any time."""

    @abstractmethod
    def commit_transaction(self, transaction_id: str) -> None:
        """On the driver: make it visible. May be called again, and must then change nothing."""

    @abstractmethod
    def abort_transaction(self, transaction_id: str) -> None:
        """It never becomes visible: on a worker if writing failed, on the driver after a crash."""

    def open_transactions(self, prefix: str) -> Iterable[str]:
        """On the driver: ids that begin with `prefix` and were neither committed nor aborted, as far as the
        system can tell. Without this, what a crash leaves behind must expire by itself."""
        return ()

    # --- as a two-phase sink ---------------------------------------------------------------------

    def create_writer(self, subtask: int, epoch: Epoch) -> SinkWriter:
        attempt = uuid.uuid4().hex[:8]
        return _TransactionWriter(self, f"{_prefix(epoch)}{epoch.number}-{subtask}-{attempt}")

    def commit(self, epoch: Epoch, messages: list[str]) -> None:
        for transaction_id in messages:
            self.commit_transaction(transaction_id)
        # Of tasks that were killed, or that Spark ran more than once.
        for transaction_id in list(self.open_transactions(f"{_prefix(epoch)}{epoch.number}-")):
            self.abort_transaction(transaction_id)

    def recover(self, epoch: Epoch) -> None:
        for transaction_id in list(self.open_transactions(_prefix(epoch))):
            self.abort_transaction(transaction_id)


def _prefix(epoch: Epoch) -> str:
    """Unlike that of any other job or sink."""
    sink = hashlib.sha256(epoch.sink_uid.encode()).hexdigest()[:8]
    return f"{epoch.job_id}-{sink}-"


class _TransactionWriter(SinkWriter):
    def __init__(self, sink: TwoPhaseCommitSink, transaction_id: str) -> None:
        self._sink = sink
        self._id = transaction_id
        try:
            self._transaction = sink.begin_transaction(transaction_id)
        except Exception:
            with suppress(Exception):  # why it could not begin is what counts
                sink.abort_transaction(transaction_id)
            raise

    def write(self, value: Any, context: SinkContext) -> None:
        self._sink.invoke(self._transaction, value, context)

    def prepare(self) -> str:
        self._sink.pre_commit(self._transaction)
        return self._id

    def abort(self) -> None:
        self._sink.abort_transaction(self._id)
