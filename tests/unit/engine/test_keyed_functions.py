"""Functions without a context on keyed streams: their state is that of the record's key (E30)."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.common import Types
from millpond.core.key_groups import key_group_of
from millpond.datastream import FilterFunction, FlatMapFunction, MapFunction, RuntimeContext
from millpond.datastream.state import ValueStateDescriptor
from millpond.testing import direct_environment

# Two keys of the same key group, and one of another.
_OF_ONE_GROUP = [n for n in range(1000) if key_group_of(n, 128) == key_group_of(0, 128)][:2]
KEYS = [*_OF_ONE_GROUP, 1]
RECORDS = [*KEYS, *KEYS, KEYS[0]]
COUNTED = [*((key, 1) for key in KEYS), *((key, 2) for key in KEYS), (KEYS[0], 3)]


class Counting:
    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def count(self) -> int:
        self._count.update((self._count.value() or 0) + 1)
        return int(self._count.value())


class CountingMap(Counting, MapFunction):
    def map(self, value: int) -> Any:
        return value, self.count()


class CountingFlatMap(Counting, FlatMapFunction):
    def flat_map(self, value: int) -> Any:
        yield value, self.count()


class Second(Counting, FilterFunction):
    def filter(self, value: int) -> bool:
        return self.count() == 2


@pytest.mark.parametrize("across_keys", [True, False])
def test_state_of_map_flat_map_and_filter_belongs_to_the_key(across_keys: bool) -> None:
    def keyed() -> Any:
        environment = direct_environment({"millpond.order-across-keys": across_keys})
        return environment.from_collection(RECORDS).key_by(lambda value: value)

    assert sorted(keyed().map(CountingMap()).execute_and_collect()) == sorted(COUNTED)
    assert sorted(keyed().flat_map(CountingFlatMap()).execute_and_collect()) == sorted(COUNTED)
    assert sorted(keyed().filter(Second()).execute_and_collect()) == sorted(KEYS)
