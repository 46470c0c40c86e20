"""State whose type changes (E47, C40): by Avro's rules, or refused before a record is read."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import sys
import types
from pathlib import Path
from typing import Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.common import Types
from millpond.common.time import Instant
from millpond.common.types import Row
from millpond.datastream import DataStream, KeyedProcessFunction, RuntimeContext
from millpond.datastream.formats.avro import AvroSchema, GenericRecordAvroTypeInfo
from millpond.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from millpond.errors import (
    IncompatibleCheckpointError,
    ProgramError,
    TypeMismatchError,
    UserFunctionError,
)
from millpond.state.types.evolution import CannotBecome, resolve
from millpond.state.types.schemas import codec_of, schema_of, schema_of_values
from millpond.testing import CUT, KeyedHarness
from tests.unit.savepoint.test_savepoint import go_on, run_and_save


@dataclasses.dataclass
class View:
    ad: str
    count: int = 0


@dataclasses.dataclass
class ViewWithPrice:
    """What View has become: a field is new."""

    ad: str
    price: float = 1.5
    count: int = 0


@dataclasses.dataclass
class ViewWithTags:
    ad: str
    count: int = 0
    tags: list[str] = dataclasses.field(default_factory=list)
    prices: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class ViewWithoutDefault:
    ad: str
    price: float
    count: int = 0


class Keep(KeyedProcessFunction):
    """Writes what it is told, and always tells what it has."""

    def __init__(self, descriptor: StateDescriptor, first: Any = None) -> None:
        self._descriptor = descriptor
        self._first = first

    def open(self, runtime_context: RuntimeContext) -> None:
        if isinstance(self._descriptor, ListStateDescriptor):
            self._state: Any = runtime_context.get_list_state(self._descriptor)
        elif isinstance(self._descriptor, MapStateDescriptor):
            self._state = runtime_context.get_map_state(self._descriptor)
        else:
            self._state = runtime_context.get_state(self._descriptor)

    def process_element(self, value: Any, ctx: Any) -> Any:
        if self._first is not None:
            if isinstance(self._descriptor, ListStateDescriptor):
                self._state.update(self._first)
            elif isinstance(self._descriptor, MapStateDescriptor):
                self._state.put_all(self._first)
            else:
                self._state.update(self._first)
        if isinstance(self._descriptor, ListStateDescriptor):
            yield list(self._state.get())
        elif isinstance(self._descriptor, MapStateDescriptor):
            yield dict(self._state.items())
        else:
            yield self._state.value()


def value(type_info: Any) -> StateDescriptor:
    return ValueStateDescriptor("state", type_info)


def listed(type_info: Any) -> StateDescriptor:
    return ListStateDescriptor("state", type_info)


def mapped(key: Any, type_info: Any) -> StateDescriptor:
    return MapStateDescriptor("state", key, type_info)


def row(**types: Any) -> Any:
    return Types.ROW_NAMED(list(types), list(types.values()))


def avro(*fields: str) -> Any:
    """A record of fields, each as JSON."""
    text = '{"type": "record", "name": "ads.View", "fields": [' + ", ".join(fields) + "]}"
    return GenericRecordAvroTypeInfo(AvroSchema.parse_string(text))


AD = '{"name": "ad", "type": "string"}'
COUNT = '{"name": "count", "type": ["null", "int"], "default": null}'
LONG_COUNT = '{"name": "count", "type": "long"}'
PRICE = '{"name": "price", "type": "double", "default": 1.5}'
PRICE_WITHOUT_DEFAULT = '{"name": "price", "type": "double"}'
RENAMED = '{"name": "advert", "type": "string", "aliases": ["ad"]}'
SIZE = '{"name": "size", "type": {"type": "enum", "name": "Size", "symbols": ["S", "M"]}}'
MORE_SIZES = SIZE.replace('"M"', '"M", "L"')
FEWER_SIZES = SIZE.replace('"S", ', "")
OTHER_SIZE = FEWER_SIZES.replace('["M"]', '["M"], "default": "M"')
MD5 = '{"name": "md5", "type": {"type": "fixed", "name": "MD5", "size": 2}}'
LARGER_MD5 = MD5.replace("2", "3")
INT, LONG, DOUBLE, STRING = Types.INT(), Types.LONG(), Types.DOUBLE(), Types.STRING()
ANY = Types.PICKLED_BYTE_ARRAY()
PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
ROW1, ROW2 = row(a=INT, b=STRING), row(b=STRING, c=INT)

# (before, what is written, after, what is read; None: it is refused)
CHANGES: dict[str, tuple[StateDescriptor, Any, StateDescriptor, Any]] = {
    "same": (value(INT), 7, value(INT), 7),
    "int to long": (value(INT), 7, value(LONG), 7),
    "int to double": (value(INT), 7, value(DOUBLE), 7.0),
    "long to double": (value(LONG), 7, value(DOUBLE), 7.0),
    "int to string": (value(INT), 7, value(STRING), None),
    "long to int": (value(LONG), 7, value(INT), None),
    "string to int": (value(STRING), "7", value(INT), None),
    "field added and one removed": (value(ROW1), Row(a=1, b="x"), value(ROW2), Row(b="x", c=None)),
    "field of another type": (
        value(row(a=INT)),
        Row(a=1),
        value(row(a=LONG)),
        Row(a=1),
    ),
    "field that cannot change": (value(row(a=INT)), Row(a=1), value(row(a=STRING)), None),
    "elements of a list": (listed(INT), [1, 2], listed(DOUBLE), [1.0, 2.0]),
    "elements that cannot change": (listed(INT), [1, 2], listed(STRING), None),
    "entries of a map": (mapped(INT, INT), {1: 2}, mapped(LONG, DOUBLE), {1: 2.0}),
    "entries that cannot change": (mapped(INT, INT), {1: 2}, mapped(STRING, INT), None),
    "lists within": (
        value(Types.LIST(row(a=INT))),
        [Row(a=1)],
        value(Types.LIST(row(a=LONG, b=STRING))),
        [Row(a=1, b=None)],
    ),
    "a type is declared": (value(ANY), 7, value(INT), 7),
    "a type that does not fit is declared": (value(ANY), "seven", value(INT), None),
    "a type is no longer declared": (value(INT), 7, value(ANY), 7),
    "value to list": (value(INT), 7, listed(INT), None),
    "dataclass": (value(View), View("a", 2), value(View), View("a", 2)),
    "dataclass gets a field": (
        value(View),
        View("a", 2),
        value(ViewWithPrice),
        ViewWithPrice("a", 1.5, 2),
    ),
    "field of an undeclared type": (
        value(row(a=INT)),
        Row(a=1),
        value(row(a=INT, b=ANY)),
        Row(a=1, b=None),
    ),
    "nothing in common": (value(row(a=INT)), Row(a=1), value(row(b=INT)), None),
    "bytes that are no text": (
        value(Types.PRIMITIVE_ARRAY(Types.BYTE())),
        b"\xff",
        value(STRING),
        None,
    ),
    "entries that are declared": (
        mapped(ANY, INT),
        {("a", 1): 2},
        mapped(PAIR, INT),
        {("a", 1): 2},
    ),
    "dataclass gets fields that are made": (
        value(View),
        View("a", 2),
        value(ViewWithTags),
        ViewWithTags("a", 2, [], {}),
    ),
    "avro: field added": (
        value(avro(AD)),
        {"ad": "a"},
        value(avro(AD, PRICE)),
        {"ad": "a", "price": 1.5},
    ),
    "avro: field added without default": (
        value(avro(AD)),
        {"ad": "a"},
        value(avro(AD, PRICE_WITHOUT_DEFAULT)),
        None,
    ),
    "avro: field removed": (
        value(avro(AD, COUNT)),
        {"ad": "a", "count": 2},
        value(avro(AD)),
        {"ad": "a"},
    ),
    "avro: int to long": (
        value(avro(AD, COUNT)),
        {"ad": "a", "count": 2},
        value(avro(AD, LONG_COUNT)),
        {"ad": "a", "count": 2},
    ),
    "avro: long to int": (
        value(avro(AD, LONG_COUNT)),
        {"ad": "a", "count": 2},
        value(avro(AD, COUNT)),
        None,
    ),
    "avro: renamed": (value(avro(AD)), {"ad": "a"}, value(avro(RENAMED)), {"advert": "a"}),
    "avro: more symbols": (
        value(avro(AD, SIZE)),
        {"ad": "a", "size": "S"},
        value(avro(AD, MORE_SIZES)),
        {"ad": "a", "size": "S"},
    ),
    "avro: symbol is gone": (
        value(avro(AD, SIZE)),
        {"ad": "a", "size": "S"},
        value(avro(AD, FEWER_SIZES)),
        None,
    ),
    "avro: symbol is gone, with a default": (
        value(avro(AD, SIZE)),
        {"ad": "a", "size": "S"},
        value(avro(AD, OTHER_SIZE)),
        {"ad": "a", "size": "M"},
    ),
    "avro: fixed": (
        value(avro(AD, MD5)),
        {"ad": "a", "md5": b"xy"},
        value(avro(AD, MD5, PRICE)),
        {"ad": "a", "md5": b"xy", "price": 1.5},
    ),
    "avro: fixed of another size": (
        value(avro(AD, MD5)),
        {"ad": "a", "md5": b"xy"},
        value(avro(AD, LARGER_MD5)),
        None,
    ),
    "avro: elements of a list": (
        listed(avro(AD)),
        [{"ad": "a"}, {"ad": "b"}],
        listed(avro(AD, PRICE)),
        [{"ad": "a", "price": 1.5}, {"ad": "b", "price": 1.5}],
    ),
    "dataclass to avro": (
        value(View),
        View("a", 2),
        value(avro(AD)),
        {"ad": "a"},
    ),
    "dataclass gets a field without default": (
        value(View),
        View("a", 2),
        value(ViewWithoutDefault),
        None,
    ),
}
# C40: a class with its new fields reads what was written before it had them.
ELEMENTS = [("key", 0, 0), CUT, ("key", 0, 1), CUT]


@pytest.mark.parametrize("parallelism", [1, 2, 4])
@pytest.mark.parametrize("change", CHANGES)
def test_savepoint_is_read_with_another_type(change: str, parallelism: int, tmp_path: Path) -> None:
    before, written, after, expected = CHANGES[change]

    def writing(stream: DataStream) -> DataStream:
        return stream.key_by(lambda r: r[0]).process(Keep(before, written)).uid("keep")

    def reading(stream: DataStream) -> DataStream:
        return stream.key_by(lambda r: r[0]).process(Keep(after)).uid("keep")

    settings = {"parallelism.default": 2}
    _, path = run_and_save(writing, ELEMENTS, tmp_path, batches=0, **settings)
    settings["parallelism.default"] = parallelism
    if expected is None:
        with pytest.raises(IncompatibleCheckpointError, match=r"operator 'KEYED PROCESS'.*'state'"):
            go_on(reading, ELEMENTS, path, **settings)
    else:
        assert go_on(reading, ELEMENTS, path, **settings) == [expected]


@pytest.mark.parametrize("change", CHANGES)
def test_log_is_read_with_another_type(change: str) -> None:
    """A program that is changed and goes on in its job folder; twice, so the change is in the log."""
    before, written, after, expected = CHANGES[change]
    job = KeyedHarness.of(Keep(before, written), lambda r: r)
    job.process_element("key")
    snapshot = job.snapshot()
    for _ in range(2):
        job = KeyedHarness.of(Keep(after), lambda r: r, restore=snapshot) if expected else None
        if job is None:
            with pytest.raises(IncompatibleCheckpointError, match="'state'"):
                KeyedHarness.of(Keep(after), lambda r: r, restore=snapshot)
            return
        job.process_element("key")
        assert job.values() == [expected]
        snapshot = job.snapshot()


@pytest.mark.parametrize("options", ["frozen=True, slots=True", "slots=True", "frozen=True", ""])
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("count: int = 0; ad: str = ''", {"ad": "a", "count": 2}),
        ("price: float = 1.5; count: int = 0; ad: str = ''", {"ad": "a", "count": 2, "price": 1.5}),
        ("count: int = 0", {"count": 2}),
    ],
)
def test_fields_of_a_class_change_places(
    options: str, fields: str, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pickles of some dataclasses have no names in them."""
    module = types.ModuleType("versions_of_a_class")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def define(body: str) -> Any:
        lines = "".join(f"    {line.strip()}\n" for line in body.split(";"))
        exec(
            f"import dataclasses\n@dataclasses.dataclass({options})\nclass Seen:\n{lines}",
            module.__dict__,
        )
        return module.Seen

    seen = define("ad: str = ''; count: int = 0")
    job = KeyedHarness.of(Keep(value(seen), seen("a", 2)), lambda r: r)
    job.process_element("key")
    snapshot = job.snapshot()
    job = KeyedHarness.of(Keep(value(define(fields))), lambda r: r, restore=snapshot)
    job.process_element("key")
    (found,) = job.values()
    assert dataclasses.asdict(found) == expected


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "not JSON"),
        ('"string"', "must describe records"),
        ('{"type": "record", "fields": []}', "not valid"),
        ('{"type": "record", "name": "a", "fields": [{"name": "b", "type": "text"}]}', "text"),
    ],
)
def test_wrong_avro_schema_is_refused(schema: str, reason: str) -> None:
    with pytest.raises(ProgramError, match=reason):
        AvroSchema.parse_string(schema)


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        (
            '["int", "string"]',
            "State cannot use a union of several .* in field b of the Avro schema a",
        ),
        ('["null", "a"]', "'a' inside itself"),
        ('"null"', "null on its own"),
        (
            '{"type": "record", "name": "c", "fields": []}',
            "a record without fields, .* field b of ",
        ),
    ],
)
def test_avro_schema_that_state_cannot_have_is_refused(field: str, reason: str) -> None:
    text = '{"type": "record", "name": "a", "fields": [{"name": "b", "type": ' + field + "}]}"
    with pytest.raises(ProgramError, match=reason):
        schema_of(GenericRecordAvroTypeInfo(AvroSchema.parse_string(text)))


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ({"ad": 7}, "ad is 7, expected text"),
        ({}, "ad is None, expected text"),
        ({"ad": "a", "color": "red"}, "it has no field color"),
        ("a", "it is 'a', expected a dictionary"),
        ({"ad": "a", "price": "1.5"}, "price is '1.5', expected a number"),
    ],
)
def test_value_that_does_not_fit_its_avro_schema_is_refused(written: Any, reason: str) -> None:
    job = KeyedHarness.of(Keep(value(avro(AD, PRICE)), written), lambda r: r)
    with pytest.raises(UserFunctionError, match=reason):
        job.process_element("key")


SHOP = """{"name": "shop", "type": {"type": "record", "name": "Shop", "fields": [
    {"name": "id", "type": "int"},
    {"name": "logo", "type": "bytes", "default": "\\u00ff"},
    {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["new"]}]}}"""


def test_fields_that_are_left_out_get_their_defaults_at_any_depth() -> None:
    written = {"ad": "a", "shop": {"id": 7}}
    job = KeyedHarness.of(Keep(value(avro(AD, PRICE, SHOP)), written), lambda r: r)
    job.process_element("key")
    shop = {"id": 7, "logo": b"\xff", "tags": ["new"]}
    assert job.values() == [{"ad": "a", "price": 1.5, "shop": shop}]


def test_what_is_wrong_within_a_record_is_named() -> None:
    declared = avro(AD, SHOP)
    for shop, reason in (
        ({"id": 1 << 40}, "shop.id is 1099511627776, expected an integer of 32 bits"),
        ({"id": 1, "tags": ["a", 5]}, r"shop.tags\[1\] is 5, expected text"),
        ({"id": 1, "extra": 9}, "shop has no field extra"),
        ({"id": decimal.Decimal(1)}, "shop.id is Decimal"),
    ):
        with pytest.raises(TypeMismatchError, match=reason):
            declared.conform({"ad": "a", "shop": shop})


def test_defaults_of_bytes_go_with_savepoints(tmp_path: Path) -> None:
    descriptor, shop = value(avro(AD, SHOP)), {"id": 7, "logo": b"\x00\xff", "tags": []}

    def keeping(first: Any) -> Any:
        return lambda s: s.key_by(lambda r: r[0]).process(Keep(descriptor, first)).uid("keep")

    _, path = run_and_save(keeping({"ad": "a", "shop": shop}), ELEMENTS, tmp_path, batches=0)
    assert go_on(keeping(None), ELEMENTS, path) == [{"ad": "a", "shop": shop}]


@pytest.mark.parametrize("options", ["", "frozen=True, slots=True"])
def test_instances_within_others_stay_what_they_are(
    options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class that holds itself is pickled there: it must be read as the class of today."""
    module = types.ModuleType("versions_of_a_class")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def define(body: str) -> Any:
        code = (
            "from __future__ import annotations\nimport dataclasses\nfrom typing import Optional\n"
            f"@dataclasses.dataclass({options})\nclass Node:\n{body}"
            "    kind: str = dataclasses.field(default='node', init=False)\n"
            "    def total(self):\n"
            "        return self.value + (self.next.total() if self.next else 0)\n"
        )
        exec(code, module.__dict__)
        return module.Node

    node = define("    value: int\n    next: Optional[Node] = None\n")
    job = KeyedHarness.of(Keep(value(node), node(1, node(2))), lambda r: r)
    job.process_element("key")
    snapshot = job.snapshot()
    node = define("    next: Optional[Node] = None\n    weight: float = 1.5\n    value: int = 0\n")
    job = KeyedHarness.of(Keep(value(node)), lambda r: r, restore=snapshot)
    job.process_element("key")
    (found,) = job.values()
    assert found.total() == 3
    assert (type(found.next), found.next.weight, found.next.kind) == (node, 1.5, "node")


def test_class_with_a_pickle_of_its_own_gets_a_field(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("versions_of_a_class")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def define(fields: str) -> Any:
        code = (
            f"import dataclasses\n@dataclasses.dataclass\nclass Point:\n{fields}"
            "    def __reduce__(self):\n        return Point, (self.x,)\n"
        )
        exec(code, module.__dict__)
        return module.Point

    point = define("    x: int\n")
    job = KeyedHarness.of(Keep(value(point), point(1)), lambda r: r)
    job.process_element("key")
    point = define("    x: int\n    y: int = 5\n")
    job = KeyedHarness.of(Keep(value(point)), lambda r: r, restore=job.snapshot())
    job.process_element("key")
    assert job.values() == [point(1, 5)]


def test_class_that_is_gone_is_read_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("versions_of_a_class")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec("import dataclasses\n@dataclasses.dataclass\nclass Old:\n    ad: str", module.__dict__)
    job = KeyedHarness.of(Keep(value(module.Old), module.Old("a")), lambda r: r)
    job.process_element("key")
    del module.Old
    job = KeyedHarness.of(Keep(value(View)), lambda r: r, restore=job.snapshot())
    job.process_element("key")
    assert job.values() == [View("a", 0)]


def test_refused_change_names_old_and_new_type() -> None:
    job = KeyedHarness.of(Keep(value(ROW1), Row(a=1, b="x")), lambda r: r)
    job.process_element("key")
    with pytest.raises(IncompatibleCheckpointError) as caught:
        KeyedHarness.of(Keep(value(row(a=STRING, b=STRING))), lambda r: r, restore=job.snapshot())
    text = str(caught.value)
    assert "written as Row (a int, b string)" in text
    assert "declared as Row (a string, b string)" in text
    assert "int cannot become string (field a)" in text


# --- values of all types go through Parquet ----------------------------------------------------------

TYPED: dict[str, tuple[Any, Any]] = {
    "string": (STRING, st.text()),
    "int": (INT, st.integers(-(2**31), 2**31 - 1)),
    "long": (LONG, st.integers(-(2**63), 2**63 - 1)),
    "double": (DOUBLE, st.floats(allow_nan=False)),
    "boolean": (Types.BOOLEAN(), st.booleans()),
    "big int": (Types.BIG_INT(), st.integers()),
    "big decimal": (Types.BIG_DEC(), st.decimals(allow_nan=False)),
    "date": (Types.SQL_DATE(), st.dates()),
    "time": (Types.SQL_TIME(), st.times()),
    "timestamp": (Types.SQL_TIMESTAMP(), st.datetimes(timezones=st.just(datetime.UTC))),
    "instant": (Types.INSTANT(), st.builds(Instant, st.integers(0, 2**40), st.integers(0, 999))),
    "bytes": (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary()),
    "list": (Types.LIST(STRING), st.lists(st.text())),
    "map": (Types.MAP(LONG, STRING), st.dictionaries(st.integers(0, 99), st.text())),
    "tuple": (Types.TUPLE([INT, STRING]), st.tuples(st.integers(0, 9), st.text())),
    "row": (row(a=INT, b=Types.LIST(INT)), st.builds(lambda a: Row(a=a, b=[a]), st.integers(0, 9))),
    "dataclass": (View, st.builds(View, st.text(), st.integers(0, 9))),
    "avro": (
        avro(
            AD, COUNT, SIZE, MD5, '{"name": "prices", "type": {"type": "map", "values": "float"}}'
        ),
        st.fixed_dictionaries(
            {
                "ad": st.text(),
                "count": st.one_of(st.none(), st.integers(0, 9)),
                "size": st.sampled_from("SM"),
                "md5": st.binary(min_size=2, max_size=2),
                "prices": st.dictionaries(st.text(), st.floats(0, 1)),
            }
        ),
    ),
    "any": (ANY, st.one_of(st.integers(), st.text(), st.lists(st.integers()))),
}


@pytest.mark.parametrize("kind", TYPED)
@given(data=st.data())
def test_values_of_all_types_come_back(kind: str, data: Any) -> None:
    declared, values = TYPED[kind]
    schema = schema_of(ValueStateDescriptor("state", declared).type_info)
    codec = codec_of(schema)
    written = data.draw(st.lists(st.one_of(values, st.none())))
    assert codec.values(codec.column(written)) == written


@pytest.mark.parametrize(
    ("values", "schema"),
    [
        (["a", "b"], "string"),
        ([1, 2], "long"),
        ([1.0], "double"),
        ([True], "boolean"),
        ([b"x"], "bytes"),
    ],
)
def test_undeclared_plain_values_are_readable_by_others(values: list[Any], schema: str) -> None:
    assert schema_of_values(values) == schema


@pytest.mark.parametrize("values", [[1, "a"], [1 << 70], [(1, 2)], [], [decimal.Decimal(1)]])
def test_other_undeclared_values_are_pickles(values: list[Any]) -> None:
    schema = schema_of_values(values)
    assert schema == {"type": "bytes", "logicalType": "pickle"}
    codec = codec_of(schema)
    assert codec.values(codec.column(values)) == values


def test_what_cannot_be_resolved_is_refused() -> None:
    for written, read in (
        ("int", "string"),
        ("double", "int"),
        ("string", {"type": "array", "items": "string"}),
    ):
        with pytest.raises(CannotBecome):
            resolve(written, read)


class SpecialView(View):
    pass


@dataclasses.dataclass
class Node:
    """Holds others of its kind."""

    name: str
    next: Optional[Node] = None  # noqa: UP045 (as people write it)


@pytest.mark.parametrize(
    ("declared", "written"),
    [
        (View, SpecialView("a", 1)),
        (View, View("a", "not an int")),  # type: ignore[arg-type]
        (Node, Node("a", Node("b"))),
        (DOUBLE, 5),
        (STRING, "lone \ud800 surrogate"),
        (Types.LIST(INT), (1, 2)),
        (Types.TUPLE([]), ()),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), [-1, 2]),
    ],
)
def test_values_that_would_not_come_back_are_pickled(
    declared: Any, written: Any, tmp_path: Path
) -> None:
    def writing(stream: DataStream) -> DataStream:
        keep = Keep(ValueStateDescriptor("state", declared), written)
        return stream.key_by(lambda r: r[0]).process(keep).uid("keep")

    def reading(stream: DataStream) -> DataStream:
        keep = Keep(ValueStateDescriptor("state", declared))
        return stream.key_by(lambda r: r[0]).process(keep).uid("keep")

    _, path = run_and_save(writing, ELEMENTS, tmp_path, batches=0)
    (found,) = go_on(reading, ELEMENTS, path)
    assert (type(found), found) == (type(written), written)


def test_key_groups_may_have_a_state_in_different_forms(tmp_path: Path) -> None:
    """A state that is declared late: only the key groups that were asked have its new type."""

    class Late(Keep):
        def open(self, runtime_context: RuntimeContext) -> None:
            self._context = runtime_context

        def process_element(self, value: Any, ctx: Any) -> Any:
            Keep.open(self, self._context)
            yield from Keep.process_element(self, value, ctx)

    def with_type(type_info: Any, first: Any = None) -> Any:
        def build(stream: DataStream) -> DataStream:
            late = Late(ValueStateDescriptor("state", type_info), first)
            return stream.key_by(lambda r: r[0]).process(late).uid("keep")

        return build

    records = [("a", 0, 0), ("b", 0, 0), CUT, ("a", 0, 1), CUT, ("a", 0, 2), ("b", 0, 2)]
    _, path = run_and_save(with_type(INT, 7), records, tmp_path, batches=0)
    _, path = run_and_save(
        with_type(DOUBLE), records, tmp_path, batches=0,
        **{"execution.state-recovery.path": path},
    )  # fmt: skip
    found = go_on(with_type(DOUBLE), records, path)
    assert [(type(one), one) for one in found] == [(float, 7.0)] * 2
