"""Whether a program can go on in a job folder that was written before."""

from __future__ import annotations

from typing import Any

from millpond.plan.physical import JobPlan, OperatorPlan


def checkpoint_identity(plan: JobPlan) -> dict[str, Any]:
    """What must be the same for a program to go on in a folder: state is found by level and
    ordinal, positions and watermarks by operator id, both laid out by the plan."""
    operators = plan.operators
    return {
        "job id": plan.settings["job_id"],
        "format": 1,
        "savepoint": plan.settings.get("savepoint"),
        "parallelism": plan.parallelism,
        "max parallelism by uid": {
            operators[task.root].uid: task.max_parallelism
            for task in plan.tasks.values()
            if task.keyed
        },
        "sources and stateful operators": [
            (operators[op].uid, state_layout(operators[op]), op, task.level, task.ordinal)
            for task in plan.tasks.values()
            for op in dict.fromkeys([task.root, *task.origins])
        ],
        "sinks": [(sink.uid, sink.id) for sink in plan.sinks.values()],
    }


def state_layout(operator: OperatorPlan) -> str:
    """How an operator's state is laid out: by its kind, and by what the operation says if that matters."""
    layout = getattr(operator.function, "state_layout", None)
    return operator.kind.value if layout is None else f"{operator.kind.value}: {layout()}"
