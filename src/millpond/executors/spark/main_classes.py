"""Makes the classes of the program's main script known to workers.

Workers cannot import the script with which a program was started, so cloudpickle sends its functions and
classes along by value. Records and state, however, must refer to their classes by name: a class that is sent
with a blob is another class after each restart of the program, and a key that is an instance of it would not
equal any of the new keys. The classes therefore travel with the plan, once, and are put where pickle looks
for them by name: into the worker's `__main__`.
"""

from __future__ import annotations

import sys

import cloudpickle

from millpond.plan.physical import JobPlan


def pack_plan(plan: JobPlan) -> bytes:
    """Return the plan and the main script's classes as one pickle, so that both refer to the same classes."""
    main = sys.modules["__main__"]
    classes = {
        name: value
        for name, value in vars(main).items()
        if isinstance(value, type) and value.__module__ == "__main__" and _can_travel(value)
    }
    data: bytes = cloudpickle.dumps(_PackedPlan(plan, classes), 5)
    return data


def _can_travel(value: type) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:  # whatever a class's own pickling raises
        return False
    return True


class _PackedPlan:
    """Becomes the plan when it is unpickled, and installs the classes on the way."""

    def __init__(self, plan: JobPlan, classes: dict[str, type]) -> None:
        self._plan = plan
        self._classes = classes

    def __reduce__(self) -> tuple[object, ...]:
        return _unpack_plan, (self._plan, self._classes)


def _unpack_plan(plan: JobPlan, classes: dict[str, type]) -> JobPlan:
    main = sys.modules["__main__"]
    for name, value in classes.items():
        known = getattr(main, name, None)
        # Never hide a name of the worker itself. A class of an earlier job may be replaced.
        if known is None or getattr(known, "_millpond_sent", False):
            try:
                type.__setattr__(value, "_millpond_sent", True)
            except TypeError:
                continue
            setattr(main, name, value)
    return plan
