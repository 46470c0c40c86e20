"""Objects at rest are found again by the names of their fields (E47, C40), wherever they are in a state."""

from __future__ import annotations

import dataclasses
import enum
import pickle
import sys
import threading
import types
from collections import Counter, OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.common import Types
from millpond.common.types import Row
from millpond.core.pickling import dumps, loads
from millpond.datastream import DataStream
from millpond.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from millpond.errors import IncompatibleCheckpointError
from millpond.testing import KeyedHarness
from tests.unit.savepoint.test_savepoint import go_on, run_and_save
from tests.unit.state.test_evolution import ELEMENTS, Keep

ANYTHING = Types.PICKLED_BYTE_ARRAY()
BEFORE = "ad: str = ''; campaign: str = ''"
AFTER = "campaign: str = ''; price: float = 1.5; ad: str = ''"
Define = Callable[[str], Any]


@pytest.fixture
def define(monkeypatch: pytest.MonkeyPatch) -> Define:
    """Makes a frozen class with slots of these fields, always of the same name."""
    module = types.ModuleType("versions_of_a_slotted_class")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def define(body: str) -> Any:
        lines = "".join(f"    {line.strip()}\n" for line in body.split(";"))
        head = "import dataclasses\n@dataclasses.dataclass(frozen=True, slots=True)\nclass Seen:\n"
        exec(head + lines, module.__dict__)
        return module.Seen

    return define


def fields_of(found: Any) -> dict[str, Any]:
    return {own.name: getattr(found, own.name) for own in dataclasses.fields(found)}


STATES: dict[str, Callable[[Any, Any], tuple[StateDescriptor, Any]]] = {
    "declared value": lambda seen, one: (ValueStateDescriptor("state", seen), one),
    "declared elements": lambda seen, one: (ListStateDescriptor("state", seen), [one]),
    "declared entries": lambda seen, one: (
        MapStateDescriptor("state", seen, Types.INT()),
        {one: 1},
    ),
    "value": lambda _, one: (ValueStateDescriptor("state", ANYTHING), one),
    "within a value": lambda _, one: (ValueStateDescriptor("state", ANYTHING), {"a": [one]}),
    "within a tuple": lambda _, one: (ValueStateDescriptor("state", ANYTHING), (1, one)),
    "entries": lambda _, one: (MapStateDescriptor("state", ANYTHING, Types.INT()), {one: 1}),
    "values of a map": lambda _, one: (MapStateDescriptor("state", ANYTHING, ANYTHING), {1: one}),
}


def first_object(found: Any) -> Any:
    while not dataclasses.is_dataclass(found):
        if isinstance(found, dict):
            (entry,) = found.items()
            found = entry[0] if dataclasses.is_dataclass(entry[0]) else entry[1]
        else:
            found = found[-1]
    return found


@pytest.mark.parametrize("where", STATES)
def test_fields_that_change_places_keep_their_values_in_the_log(where: str, define: Define) -> None:
    seen = define(BEFORE)
    job = KeyedHarness.of(Keep(*STATES[where](seen, seen("a", "c"))), lambda r: r)
    job.process_element("key")
    snapshot = job.snapshot()
    for _ in range(2):  # so that what was converted is in the log
        descriptor, _ = STATES[where](define(AFTER), None)
        job = KeyedHarness.of(Keep(descriptor), lambda r: r, restore=snapshot)
        job.process_element("key")
        (found,) = job.values()
        assert fields_of(first_object(found)) == {"campaign": "c", "price": 1.5, "ad": "a"}
        snapshot = job.snapshot()


@pytest.mark.parametrize("where", STATES)
def test_fields_that_change_places_keep_their_values_in_savepoints(
    where: str, define: Define, tmp_path: Path
) -> None:
    def using(*arguments: Any) -> Any:
        def build(stream: DataStream) -> DataStream:
            return stream.key_by(lambda r: r[0]).process(Keep(*arguments)).uid("keep")

        return build

    seen = define(BEFORE)
    state = STATES[where](seen, seen("a", "c"))
    _, path = run_and_save(using(*state), ELEMENTS, tmp_path, batches=0)
    (found,) = go_on(using(STATES[where](define(AFTER), None)[0]), ELEMENTS, path)
    assert fields_of(first_object(found)) == {"campaign": "c", "price": 1.5, "ad": "a"}


def test_field_without_default_is_refused_by_name(define: Define) -> None:
    written = dumps(define(BEFORE)("a", "c"))
    define("ad: str; price: float")
    with pytest.raises(IncompatibleCheckpointError, match=r"new field price of .*Seen has no"):
        loads(written)


def test_keys_whose_fields_change_places_are_refused(define: Define, tmp_path: Path) -> None:
    """C40: they would be looked for in other key groups."""

    def counted(seen: Any) -> Any:
        def build(stream: DataStream) -> DataStream:
            keep = Keep(ValueStateDescriptor("state", Types.INT()), 1)
            return stream.key_by(lambda r: seen(ad=r[0], campaign="c")).process(keep).uid("keep")

        return build

    _, path = run_and_save(counted(define(BEFORE)), ELEMENTS, tmp_path, batches=0)
    with pytest.raises(
        IncompatibleCheckpointError, match=r"'KEYED PROCESS'.*key .*Seen\(.*changed"
    ):
        go_on(counted(define(AFTER)), ELEMENTS, path)


def test_old_pickles_of_such_classes_are_read(define: Define) -> None:
    seen = define(BEFORE)
    assert loads(pickle.dumps(seen("a", "c"), 5)) == seen("a", "c")


# --- all else is as with pickle ----------------------------------------------------------------------

Anything = TypeVar("Anything")


@dataclasses.dataclass
class Plain:
    name: str
    number: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class WithPlain:
    plain: Plain
    others: list[Any]


class Color(enum.Enum):
    RED = 1


class Point(NamedTuple):
    x: int
    y: int


class Box(Generic[Anything]):
    def __init__(self, content: Anything) -> None:
        self.content = content

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Box) and self.content == other.content


class Restored:
    """Says how it comes back."""

    def __init__(self) -> None:
        self.name = "a"

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, came_back=True)


class Words(list[str]):
    def __init__(self, *words: str) -> None:
        super().__init__(words)
        self.language = "en"


class Half:
    __slots__ = ("__dict__", "left")

    def __init__(self, left: int, right: int) -> None:
        self.left = left
        self.right = right

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Half) and (self.left, self.right) == (other.left, other.right)


VALUES: dict[str, Any] = {
    "plain class": Plain("a", 2),
    "slotted class": Slotted("a"),
    "classes within others": WithPlain(Plain("a"), [Slotted("b"), {"c": Plain("d")}]),
    "enum": Color.RED,
    "named tuple": Point(1, 2),
    "generic": Box(Slotted("a")),
    "row": Row(a=1, b=Slotted("a")),
    "list with attributes": Words("a", "b"),
    "slots and attributes": Half(1, 2),
    "class": Plain,
    "class of a class": Color,
    "function": dumps,
    "complex": 1 + 2j,
    "counter": Counter("abca"),
    "ordered": OrderedDict(b=1, a=2),
    "bytes of some size": [b"x" * 100_000, Plain("a")],
}


@pytest.mark.parametrize("kind", VALUES)
def test_objects_come_back(kind: str) -> None:
    for _ in range(2):  # the second time it is known how
        back = loads(dumps(VALUES[kind]))
        assert (type(back), back) == (type(VALUES[kind]), VALUES[kind])
    if kind == "list with attributes":
        assert back.language == "en"


def test_arrays_and_their_like_come_back() -> None:
    array = numpy.arange(10)
    assert (loads(dumps({"a": array}))["a"] == array).all()


def test_class_that_says_how_it_comes_back_is_asked() -> None:
    assert loads(dumps(Restored())).came_back


def test_same_object_stays_the_same() -> None:
    slotted, plain = Slotted("a"), Plain("b")
    first, second, third, fourth = loads(dumps([slotted, slotted, plain, plain]))
    assert first is second and third is fourth


def test_class_made_inside_a_function_is_pickled_by_value() -> None:
    @dataclasses.dataclass(frozen=True, slots=True)
    class Local:
        name: str

    back = loads(dumps([Local("a"), Slotted("b")]))
    assert back[0].name == "a" and back[1] == Slotted("b")


def test_object_may_be_pickled_while_another_one_is() -> None:
    class Outer:
        def __reduce__(self) -> Any:
            return loads, (dumps(Plain("inner")),)

    assert loads(dumps([Outer(), Plain("after")])) == [Plain("inner"), Plain("after")]


def test_failure_leaves_nothing_behind() -> None:
    lock = threading.Lock()
    for _ in range(2):
        with pytest.raises(TypeError, match="lock"):
            dumps([Plain("a"), lock])
        assert loads(dumps(Plain("b"))) == Plain("b")


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
)


@given(PLAIN)
def test_plain_values_are_pickled_as_ever(value: Any) -> None:
    assert loads(dumps(value)) == value
