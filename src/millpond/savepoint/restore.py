"""Checks that a program can start from a savepoint (E46, C41, C42), before anything runs."""

from __future__ import annotations

from millpond.errors import SavepointError
from millpond.plan.identity import state_layout
from millpond.plan.physical import JobPlan, TaskPlan
from millpond.plan.settings import StoredForm, StoredTypes
from millpond.savepoint.manifest import OperatorEntry
from millpond.savepoint.reader import SavepointReader, without_key
from millpond.state.key_check import KEY, changed_key, key_schema
from millpond.state.types.schemas import PICKLE


def open_savepoint(path: str | None) -> SavepointReader | None:
    """Open and check the savepoint from which a job is to start; return None if `path` is None."""
    if path is None:
        return None
    reader = SavepointReader(path)
    reader.check()
    return reader


def saved_types(reader: SavepointReader) -> StoredTypes:
    """Return the forms in which states are stored, by uid and name."""
    types: dict[str, dict[str, list[StoredForm]]] = {}
    for operator in reader.manifest.operators:
        for state in operator.states:
            form = (state.kind, without_key(state.types))
            types.setdefault(operator.uid, {}).setdefault(state.name, []).append(form)
    return types


def saved_maxima(reader: SavepointReader) -> dict[str, int]:
    """Return the max parallelism of keyed operators, by uid."""
    return {
        operator.uid: operator.max_parallelism
        for operator in reader.manifest.operators
        if operator.keyed
    }


def check_fit(plan: JobPlan, reader: SavepointReader, allow_non_restored: bool) -> None:
    """Raise SavepointError if the plan cannot use the savepoint's state. With `allow_non_restored`, state
    that no operator claims is left behind."""
    tasks = {plan.operators[task.root].uid: task for task in plan.tasks.values()}
    _check_unclaimed(reader, plan, tasks, allow_non_restored)
    for operator in reader.manifest.operators:
        task = tasks.get(operator.uid)
        if task is not None:
            _check_operator(reader, plan, task, operator)


def _check_unclaimed(
    reader: SavepointReader, plan: JobPlan, tasks: dict[str, TaskPlan], allowed: bool
) -> None:
    sources = {plan.operators[task.root].uid for task in plan.source_tasks}
    lost = [
        f"operator '{operator.name}' (uid '{operator.uid}', {operator.rows} entries)"
        for operator in reader.manifest.operators
        if operator.uid not in tasks
    ] + [f"source with uid '{uid}'" for uid in reader.manifest.sources if uid not in sources]
    if lost and not allowed:
        raise SavepointError(
            f"The savepoint {reader.path} has state that no operator of this program claims: "
            f"{', '.join(lost)}. Give the operators the uids they had, or drop this state: "
            "--allow-non-restored-state, or execution.state-recovery.ignore-unclaimed-state."
        )


def _check_operator(
    reader: SavepointReader, plan: JobPlan, task: TaskPlan, saved: OperatorEntry
) -> None:
    operator = plan.operators[task.root]
    where = f"Operator '{operator.name}' (uid '{operator.uid}')"
    # The layout is "" if the savepoint was made without a job.
    if saved.layout and state_layout(operator) != saved.layout:
        raise SavepointError(
            f"{where} is {state_layout(operator)}, but the savepoint {reader.path} has the state of "
            f"{saved.layout}. Give it another uid to start without that state."
        )
    if not saved.keyed:
        return
    if task.max_parallelism != saved.max_parallelism:
        raise SavepointError(
            f"{where} has max parallelism {task.max_parallelism}, but its state in {reader.path} was "
            f"written with {saved.max_parallelism}, which cannot change. Set it to {saved.max_parallelism} "
            "(set_max_parallelism)."
        )
    if task.parallelism > saved.max_parallelism:
        raise SavepointError(
            f"{where} has parallelism {task.parallelism}, which is above the max parallelism "
            f"{saved.max_parallelism} of its state in {reader.path}."
        )
    _check_keys(plan, task, saved, f"{where}: ", f" in {reader.path}")


def _check_keys(
    plan: JobPlan, task: TaskPlan, saved: OperatorEntry, before: str, after: str
) -> None:
    now = key_schema(plan, task)
    for state in saved.states:
        declared = state.types.get(KEY)
        schema = state.schemas.get(KEY, PICKLE) if declared is None else declared
        change = changed_key(schema, now, declared is not None)
        if change is not None:
            raise SavepointError(
                f"{before}{change}{after}. Keys cannot change their type; give the operator another uid to "
                "start without that state."
            )
