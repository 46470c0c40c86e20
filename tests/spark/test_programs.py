"""Every program of the catalogue through Spark: the same results as on the direct executor."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import MakeEnvironment
from tests.programs.catalogue import PROGRAMS
from tests.programs.test_direct import in_any_order

pytestmark = [
    pytest.mark.spark,
    pytest.mark.parametrize("spark_environment", ["chosen below"], indirect=True),
]


WAYS = [(2, 4, True), (4, 1000, True), (1, 1000, True), (2, 4, False)]


def cases() -> list[Any]:
    """Each program in one way, in turn, and in all others in bin/soak."""
    return [
        pytest.param(name, *way, marks=[] if number % len(WAYS) == place else [pytest.mark.soak])
        for number, name in enumerate(PROGRAMS)
        for place, way in enumerate(WAYS)
    ]


@pytest.mark.parametrize(("name", "parallelism", "batch_records", "keeps_order"), cases())
def test_program_gives_its_result_on_spark(
    name: str,
    parallelism: int,
    batch_records: int,
    keeps_order: bool,
    spark_environment: MakeEnvironment,
) -> None:
    """E1, E22, E3: with 1 and with 4 partitions, in one batch and in many."""
    build, expected = PROGRAMS[name]
    environment = spark_environment(
        parallelism__default=parallelism,
        millpond__batch__max_records=batch_records,
        millpond__order_across_keys=keeps_order,
    )
    title = f"{name} {parallelism} {batch_records} {keeps_order}"
    values: Any = build(environment).execute_and_collect(title)
    assert in_any_order(list(values)) == in_any_order(expected)
