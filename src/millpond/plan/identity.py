"""Whether a program can go on in a job folder that was written before: `job.blob` in it.

Payload of the blob (see core/codec.py for the envelope): a tuple of the fields of `JobIdentity`, in order.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any

from millpond.core import codec
from millpond.core.codec import BlobKind
from millpond.datastream.stream_graph import OperatorKind
from millpond.plan.physical import JobPlan, OperatorPlan
from millpond.plan.window_strategy import window_layout

_COMPARED = {
    "parallelism": "parallelism",
    "parallelisms": "parallelism by uid",
    "max_parallelisms": "max parallelism by uid",
    "operators": "sources and stateful operators",
    "sinks": "sinks",
    "keeps_order_across_keys": "millpond.order-across-keys",
}


@dataclass(frozen=True)
class JobIdentity:
    """What a job is. State is found by level and ordinal, positions and watermarks by operator id, all laid
    out by the plan: so these must be the same for a program to go on in a folder."""

    job_id: str
    savepoint: str | None
    """The savepoint that the job once started from."""
    parallelism: int
    parallelisms: dict[str, int]
    """uid -> parallelism of the task"""
    max_parallelisms: dict[str, int]
    """uid -> max parallelism of the keyed task"""
    operators: list[tuple[str, str, int, int, int]]
    """(uid, layout of its state, operator, level, ordinal) of sources and of operators with state"""
    sinks: list[tuple[str, int]]
    """(uid, sink)"""
    keeps_order_across_keys: bool
    """Decides in which logs broadcast state is."""

    def difference(self, other: JobIdentity) -> tuple[str, Any, Any] | None:
        """Return the first thing that keeps one from going on in the folder of the other: its name, what it
        is here, and what it is there. Id and savepoint do not count: a job takes them from its folder."""
        for name, text in _COMPARED.items():
            here, there = getattr(self, name), getattr(other, name)
            if here != there:
                return text, here, there
        return None

    def encode(self) -> bytes:
        """Return the blob of `job.blob`."""
        return codec.encode(BlobKind.JOB, astuple(self))

    @staticmethod
    def decode(blob: bytes, where: str) -> JobIdentity:
        """Return what a blob holds. Raises CorruptDataError, naming `where`, if it is damaged."""
        return JobIdentity(*codec.decode(BlobKind.JOB, blob, where))


def identity_of(plan: JobPlan) -> JobIdentity:
    """Return what a job folder must have been written with for this plan to go on in it."""
    operators = plan.operators
    return JobIdentity(
        plan.start.job_id,
        plan.start.savepoint,
        plan.parallelism,
        {
            operators[task.root].uid: task.parallelism
            for task in plan.tasks.values()
            if task.level > 0
        },
        {
            operators[task.root].uid: task.max_parallelism
            for task in plan.tasks.values()
            if task.keyed
        },
        [
            (operators[op].uid, state_layout(operators[op]), op, task.level, task.ordinal)
            for task in plan.tasks.values()
            for op in dict.fromkeys([task.root, *task.origins])
        ],
        [(sink.uid, sink.id) for sink in plan.sinks.values()],
        plan.settings.keeps_order_across_keys,
    )


def state_layout(operator: OperatorPlan) -> str:
    """Return how an operator's state is laid out: by its kind, and for windows by how they are run."""
    kind: str = operator.kind.value
    is_window = operator.kind is OperatorKind.WINDOW
    return f"{kind}: {window_layout(operator.function)}" if is_window else kind
