"""Every program of the catalogue on the direct executor."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.testing import direct_environment
from tests.programs.catalogue import PROGRAMS


def in_any_order(values: list[Any]) -> list[str]:
    return sorted(repr(value) for value in values)


@pytest.mark.parametrize("batch_records", [1, 2, 7, 1000])
@pytest.mark.parametrize("parallelism", [1, 4])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_gives_its_result(name: str, parallelism: int, batch_records: int) -> None:
    """E1, E22: whatever the parallelism and wherever batches are cut."""
    build, expected = PROGRAMS[name]
    environment = direct_environment(
        {"parallelism.default": parallelism, "millpond.batch.max-records": batch_records}
    )
    values = list(build(environment).execute_and_collect())
    assert in_any_order(values) == in_any_order(expected)
