"""How Python objects become bytes: pickle, with two additions.

Pickle would store a frozen dataclass with slots as the values of its fields without their names, so a class
whose fields change places would read one as the other. Here its fields are pickled with their names.
A class that cannot be imported elsewhere (one made inside a function) is pickled by value.

How a class is pickled is found out once; after that, everything happens in C. Objects that consist of their
`__dict__` alone, and objects of classes that define `__reduce__`, are pickled faster than by `pickle.dumps`.
"""

from __future__ import annotations

import copyreg
import dataclasses
import importlib
import operator
import pickle
from collections import ChainMap
from collections.abc import Callable
from types import FunctionType, MethodDescriptorType
from typing import Any

import cloudpickle

from millpond.errors import IncompatibleCheckpointError

PROTOCOL = 5
_SMALL = 512  # bytes; a pickler that has pickled more takes long to clear its memo
_Reduce = Callable[[Any], str | tuple[Any, ...]]

loads = pickle.loads


def dumps(value: object) -> bytes:
    """Return the pickle of a value. What plain pickle refuses is pickled by value, as cloudpickle does it."""
    try:
        idle = _take()
    except IndexError:
        idle = _new_pickler()
    dump, pieces, forget = idle
    try:
        dump(value)
    except (pickle.PicklingError, AttributeError, TypeError):
        return _by_value(value)
    data = pieces.pop()
    if pieces:
        return b"".join([*pieces, data])
    if len(data) < _SMALL:
        forget()
        _put_back(idle)
    return data


class _Reducers(dict[type, _Reduce]):
    """Class -> function that takes its instances apart."""

    def __missing__(self, python_class: type) -> _Reduce:
        reduce = self[python_class] = _reducer(python_class)
        return reduce


_reducers = _Reducers()


class _Target:
    """The file that a pickler writes to: collects the pieces in a list."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.write = pieces.append


class _Pickler(pickle.Pickler):
    dispatch_table = _reducers  # type: ignore[assignment]


class _CloudPickler(cloudpickle.Pickler):  # type: ignore[misc]
    dispatch_table = ChainMap(cloudpickle.Pickler._dispatch_table, _reducers)


# Idle picklers: making one costs more than pickling a small value. A pickler is taken out while it works,
# because an object may be pickled while another one is, in this thread or in another.
_Idle = tuple[Callable[[object], None], list[bytes], Callable[[], None]]
_idle: list[_Idle] = []
_take, _put_back = _idle.pop, _idle.append


def _new_pickler() -> _Idle:
    pieces: list[bytes] = []
    pickler = _Pickler(_Target(pieces), PROTOCOL)
    return pickler.dump, pieces, pickler.clear_memo


def _by_value(value: object) -> bytes:
    pieces: list[bytes] = []
    _CloudPickler(_Target(pieces), PROTOCOL).dump(value)
    return b"".join(pieces)


def _name_of(python_class: type) -> str:
    return python_class.__qualname__


def _as_usual(instance: object) -> str | tuple[Any, ...]:
    return instance.__reduce_ex__(5)  # operator.methodcaller is slower


def _reducer(python_class: Any) -> _Reduce:
    known = copyreg.dispatch_table.get(python_class)
    if known is not None:
        return known
    if issubclass(python_class, type):
        return _name_of  # an instance is a class, which is named, not taken apart
    if python_class.__reduce_ex__ is not object.__reduce_ex__:
        return _as_usual
    if python_class.__reduce__ is not object.__reduce__:
        reduce = python_class.__reduce__
        return reduce if isinstance(reduce, (FunctionType, MethodDescriptorType)) else _as_usual
    if _is_without_names(python_class) and find_class(reference_of(python_class)) is python_class:
        names = _field_names(python_class)
        values_of = operator.attrgetter(*names)
        if len(names) == 1:
            return lambda instance: (with_fields, (python_class, names, (values_of(instance),)))
        return lambda instance: (with_fields, (python_class, names, values_of(instance)))
    if _is_simple(python_class):
        arguments = (python_class,)
        return lambda instance: (copyreg.__newobj__, arguments, instance.__dict__ or None)  # type: ignore[attr-defined]
    return _as_usual


def _is_without_names(python_class: type) -> bool:
    getstate = vars(python_class).get("__getstate__")
    return (
        dataclasses.is_dataclass(python_class)
        and getattr(getstate, "__module__", "") == dataclasses.__name__
        and bool(dataclasses.fields(python_class))
    )


def _is_simple(python_class: type) -> bool:
    """Return True if an instance is its `__dict__` and nothing else."""
    return (
        getattr(python_class, "__getstate__", None) is getattr(object, "__getstate__", None)
        and not hasattr(python_class, "__getnewargs_ex__")
        and not hasattr(python_class, "__getnewargs__")
        and python_class.__basicsize__ == _Plain.__basicsize__
        and python_class.__dictoffset__ == _Plain.__dictoffset__
        and python_class.__itemsize__ == 0
        and all(not vars(base).get("__slots__") for base in python_class.__mro__)
        and all(base is object or base.__flags__ & _HEAP_TYPE for base in python_class.__mro__)
    )


class _Plain:
    pass


_HEAP_TYPE = 1 << 9  # the flag of classes that Python code has made


def reference_of(python_class: type) -> str:
    """Return `module:qualified name` of a class, by which `find_class` finds it."""
    return f"{python_class.__module__}:{python_class.__qualname__}"


def find_class(reference: str) -> Any:
    """Return what `reference_of` refers to, or None if it cannot be imported."""
    module, _, name = reference.partition(":")
    try:
        found: object = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return None
    return found


_names_today: dict[type, tuple[str, ...]] = {}
_new, _set = object.__new__, object.__setattr__


def with_fields(python_class: Any, names: tuple[str, ...], values: tuple[Any, ...]) -> object:
    """Return an instance of a dataclass as the class is today, from the fields that were pickled.

    Fields are set by name. New fields get their defaults, and fields that no longer exist are dropped. Raises
    IncompatibleCheckpointError if a new field has no default.

    Pickles at rest name this function, so it must stay in this module under this name."""
    made: Any = _new(python_class)
    today = _names_today.get(python_class)
    if today is None:
        today = _names_today[python_class] = _field_names(python_class)
    if names == today:
        for name, value in zip(names, values, strict=True):
            _set(made, name, value)
        return made
    given = dict(zip(names, values, strict=True))
    if not today:  # a stand-in, see state/types/as_written.py
        made.__setstate__(given)
        return made
    for field in dataclasses.fields(python_class):
        if field.name in given:
            value = given[field.name]
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        elif field.default is not dataclasses.MISSING:
            value = field.default
        else:
            raise IncompatibleCheckpointError(
                f"The new field {field.name} of {reference_of(python_class)} has no default, but the state "
                "has instances without it: give the field a default."
            )
        _set(made, field.name, value)
    return made


def _field_names(python_class: type) -> tuple[str, ...]:
    if not dataclasses.is_dataclass(python_class):
        return ()
    return tuple(field.name for field in dataclasses.fields(python_class))
