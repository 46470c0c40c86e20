"""Exactly-once output to a system with transactions: the base class of users' sinks (E43, C43)."""

from __future__ import annotations

import hashlib
import uuid
from abc import abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from typing import Generic

from millpond.common.type_variables import IN, TXN
from millpond.datastream.connectors.base import Epoch, SinkWriter, TwoPhaseSink
from millpond.datastream.functions import SinkContext


class TwoPhaseCommitSink(TwoPhaseSink, Generic[IN, TXN]):
    """A sink with a transaction, named by an id, for each epoch and each subtask that has records.

    On a worker: `begin_transaction`, `invoke` for every record, `pre_commit`. On the driver, when the epoch
    counts: `commit_transaction`. After a failure, what the newest epoch that counts has pre-committed is
    committed, possibly again, and all other transactions that `open_transactions` returns are aborted.
    """

    @abstractmethod
    def begin_transaction(self, transaction_id: str) -> TXN:
        """Begin a transaction on a worker; return what `invoke` and `pre_commit` are to get."""

    @abstractmethod
    def invoke(self, transaction: TXN, value: IN, context: SinkContext) -> None:
        """Write a record in the transaction."""

    @abstractmethod
    def pre_commit(self, transaction: TXN) -> None:
        """Make the transaction durable, so that any process can commit it by its id at any time."""

    @abstractmethod
    def commit_transaction(self, transaction_id: str) -> None:
        """Make the transaction visible. Called on the driver; if it is called again, it must change
        nothing."""

    @abstractmethod
    def abort_transaction(self, transaction_id: str) -> None:
        """Discard the transaction: on a worker if writing failed, on the driver after a crash."""

    def open_transactions(self, prefix: str) -> Iterable[str]:
        """Return the ids beginning with `prefix` that were neither committed nor aborted, as far as the
        system can tell.

        Called on the driver. Without it, what a crash leaves behind must expire by itself.
        """
        return ()

    # --- as a two-phase sink ---------------------------------------------------------------------

    def create_writer(self, subtask: int, epoch: Epoch) -> SinkWriter:
        attempt = uuid.uuid4().hex[:8]
        return _TransactionWriter(self, f"{_prefix(epoch)}{epoch.number}-{subtask}-{attempt}")

    def commit(self, epoch: Epoch, messages: list[str]) -> None:
        for transaction_id in messages:
            self.commit_transaction(transaction_id)
        # These belong to tasks that were killed, or that Spark ran more than once.
        for transaction_id in list(self.open_transactions(f"{_prefix(epoch)}{epoch.number}-")):
            self.abort_transaction(transaction_id)

    def recover(self, epoch: Epoch) -> None:
        for transaction_id in list(self.open_transactions(_prefix(epoch))):
            self.abort_transaction(transaction_id)


def _prefix(epoch: Epoch) -> str:
    """Return a prefix that differs from that of any other job or sink."""
    sink = hashlib.sha256(epoch.sink_uid.encode()).hexdigest()[:8]
    return f"{epoch.job_id}-{sink}-"


class _TransactionWriter(SinkWriter[IN]):
    def __init__(self, sink: TwoPhaseCommitSink[IN], transaction_id: str) -> None:
        self._sink = sink
        self._id = transaction_id
        try:
            self._transaction = sink.begin_transaction(transaction_id)
        except Exception:
            with suppress(Exception):  # the first error is the one that matters
                sink.abort_transaction(transaction_id)
            raise

    def write(self, value: IN, context: SinkContext) -> None:
        self._sink.invoke(self._transaction, value, context)

    def prepare(self) -> str:
        self._sink.pre_commit(self._transaction)
        return self._id

    def abort(self) -> None:
        self._sink.abort_transaction(self._id)
