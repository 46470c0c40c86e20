"""All batches of an attempt run the same RDDs (E42): each must compute everything anew, whatever is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyspark
import pytest

from millpond.common import Types
from millpond.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from millpond.datastream.state import ValueStateDescriptor
from millpond.executors.spark import batch_job
from tests.conftest import MakeEnvironment

pytestmark = pytest.mark.spark


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield value, self.count.value()


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Has an entry for each RDD that was made by a shuffle."""
    built: list[int] = []
    partition_by = pyspark.RDD.partitionBy

    def noted(rdd: Any, count: int, function: Callable[[Any], int]) -> Any:
        built.append(count)
        return partition_by(rdd, count, function)

    monkeypatch.setattr(pyspark.RDD, "partitionBy", noted)
    return built


def counted(environment: StreamExecutionEnvironment) -> list[Any]:
    """Count 30 numbers by key in two stages."""
    numbers = environment.from_collection(list(range(30)))
    once = numbers.key_by(lambda n: n % 3).process(Count())
    twice = once.key_by(lambda pair: pair[0] % 2).process(Count())
    return sorted(twice.execute_and_collect())


SHUFFLES = 3
"""One for the anchors, and one for each keyed stage."""
EXPECTED = sorted(((n, n // 3 + 1), n // 2 + 1) for n in range(30))


def test_batches_run_the_same_rdds(spark_environment: MakeEnvironment, built: list[int]) -> None:
    assert counted(spark_environment(millpond__batch__max_records=3)) == EXPECTED
    assert len(built) == SHUFFLES, "however many batches there are"


def test_plans_that_are_too_large_for_properties_are_broadcast(
    spark_environment: MakeEnvironment, built: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_job, "_MOST_IN_PROPERTIES", 10)
    assert counted(spark_environment(millpond__batch__max_records=3)) == EXPECTED
    assert len(built) > SHUFFLES


def test_results_that_spark_keeps_from_one_batch_do_not_count_in_the_next(
    spark_environment: MakeEnvironment, built: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark.RDD, "cleanShuffleDependencies", lambda rdd, blocking: None)
    assert counted(spark_environment(millpond__batch__max_records=10)) == EXPECTED
    assert len(built) > SHUFFLES, "batches have run again, with RDDs of their own"
