"""Checks that the keys of an operator are what they were, so that they will be found again (C40)."""

from __future__ import annotations

import dataclasses
from typing import Any

from millpond.core.key_groups import key_group_of
from millpond.datastream.formats.avro_schemas import Schema
from millpond.datastream.stream_graph import ExchangeKind
from millpond.errors import IncompatibleCheckpointError
from millpond.plan.physical import JobPlan, TaskPlan
from millpond.state.grouping import WITHOUT_KEY
from millpond.state.shard_state import Content
from millpond.state.types.evolution import type_text
from millpond.state.types.schemas import PICKLE, is_pickled, schema_of

KEY = "key"  # the savepoint column of keys, and the name of their type among the types of a state
_INTEGERS = ("int", "long")


def key_schema(job: JobPlan, task: TaskPlan) -> Schema:
    """Return the schema of the type that the program declares for the keys of a task; that of pickles if it
    declares none."""
    for task_input in task.inputs:
        exchange = job.exchanges[task_input.exchange]
        if exchange.kind is ExchangeKind.KEY and exchange.key_type is not None:
            schema = schema_of(exchange.key_type)
            if not is_pickled(schema):
                return schema
    return PICKLE


def changed_key(before: Schema, now: Schema, was_declared: bool = True) -> str | None:
    """Return a text that says so if keys have another type than they had, else None. An undeclared type is
    never taken for another.

    If not `was_declared`, `before` was found by looking at the values, which are longs if they are integers.
    """
    if is_pickled(before) or is_pickled(now) or before == now:
        return None
    if not was_declared and before in _INTEGERS and now in _INTEGERS:
        return None
    return f"its keys are {type_text(now)}, but were {type_text(before)}"


def check_keys(where: str, content: Content, key_group: int, max_parallelism: int) -> None:
    """Raise IncompatibleCheckpointError if the class of the keys has changed since they were written. One key
    of each state tells; keys that are not dataclasses cannot change."""
    for name, (_, changes) in content["states"].items():
        key = None if name.startswith(WITHOUT_KEY) else _first_key(changes)
        is_object = dataclasses.is_dataclass(key)
        if is_object and key_group_of(key, max_parallelism) != key_group:
            raise IncompatibleCheckpointError(
                f"{where}: the key {key!r} belongs to another key group now: the fields of "
                f"{type(key).__name__} have changed since it was written. Keys cannot change; give the "
                "operator another uid to start without that state, or leave the class as it was."
            )


def _first_key(changes: tuple[Any, ...]) -> object:
    """Return the first key, if it is an object of any class; such columns are not packed."""
    column = changes[0]
    if isinstance(column, tuple) and column[0] == "O" and column[1]:
        return column[1][0]
    return None
