"""Key groups of a frequency-capping job: they cost latency, and bound its parallelism (decision 12)."""

from __future__ import annotations

import argparse

import pytest

from millpond.apps.frequency_capping.command.job import _configuration


@pytest.mark.parametrize(
    ("parallelism", "settings", "expected"),
    [
        (None, [], 32),
        (2, [], 32),
        (32, [], 32),
        (33, [], -1),  # as many as Flink would have
        (2, ["pipeline.max-parallelism=128"], 128),
    ],
)
def test_key_groups_are_few_unless_more_are_wanted(
    parallelism: int | None, settings: list[str], expected: int
) -> None:
    parsed = argparse.Namespace(
        checkpoint="state", master=None, parallelism=parallelism, settings=settings
    )
    found = _configuration(parsed, until_end=True)
    assert found.get_integer("pipeline.max-parallelism", -1) == expected
