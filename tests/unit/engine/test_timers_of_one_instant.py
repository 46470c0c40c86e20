"""Timers of different keys for the same instant fire in the order of registration, also after a failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millpond.common import RestartStrategies
from millpond.datastream import KeyedProcessFunction
from millpond.testing import CUT, FAIL, MarkedSource, direct_environment
from tests.conformance.test_order_across_keys import by_second_field

KEYS = [f"key {number * 7 % 50}" for number in range(50)]


class Chorus(KeyedProcessFunction):
    """All keys ring at the same time."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(1000)
        return []

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key()


@pytest.mark.parametrize("marks", [[CUT], [CUT, FAIL], [CUT, FAIL, CUT, FAIL]])
def test_timers_of_one_instant_fire_in_the_order_of_registration(
    marks: list[Any], tmp_path: Path
) -> None:
    """C12, E42: after a failure they come from the logs of many key groups."""
    environment = direct_environment({})
    strategy = RestartStrategies.fixed_delay_restart(3, 0)
    environment.get_config().set_restart_strategy(strategy)
    records: list[Any] = [(key, 10) for key in KEYS]
    source = MarkedSource([*records[:20], *marks, *records[20:], CUT], str(tmp_path))
    stream = environment.from_source(source, by_second_field(), "records")
    rung = stream.key_by(lambda record: record[0]).process(Chorus())
    assert list(rung.execute_and_collect()) == KEYS
