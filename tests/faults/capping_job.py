"""The job the fault tests kill: views in, counts and ageing out to files; three keyed stages, one on columns.

python -m tests.faults.capping_job SETTINGS_JSON
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from millpond.common import Configuration, Encoder, RestartStrategies, Types, WatermarkStrategy
from millpond.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from millpond.datastream.columns import (
    ColumnStateDescriptor,
    KeyedColumnFunction,
    KeyedColumns,
    fields,
)
from millpond.datastream.connectors.file_system import FileSink
from millpond.datastream.state import ListStateDescriptor, MapStateDescriptor
from millpond.testing import CUT, KILL_DRIVER, KILL_WORKER, MarkedSource

BATCHES = 8
VIEWS_PER_BATCH = 30


@dataclass(frozen=True)
class User:
    """A key whose class is the main script's: state must be found by it after a restart."""

    name: str


class CountViews(KeyedProcessFunction):
    """Counts per ad, each view ages out after 10 s. Sends its own process a signal once if told to."""

    def __init__(self, kill_at: int | None, kill_signal: int, marks_folder: str) -> None:
        self._kill_at = kill_at
        self._kill_signal = kill_signal
        self._marks_folder = marks_folder

    def open(self, runtime_context: RuntimeContext) -> None:
        self.counts = runtime_context.get_map_state(
            MapStateDescriptor("counts", Types.STRING(), Types.INT())
        )
        self.ads = runtime_context.get_list_state(ListStateDescriptor("ads", Types.STRING()))

    def process_element(self, value: tuple[str, str, int], ctx: Any) -> Any:
        user, ad, time_ms = value
        if self._kill_at == time_ms:
            mark = Path(self._marks_folder) / "killed-in-task"
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), self._kill_signal)
        count = (self.counts.get(ad) or 0) + 1
        self.counts.put(ad, count)
        self.ads.add(ad)
        ctx.timer_service().register_event_time_timer(time_ms + 10_000)
        yield ("view", user, ad, count)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        ads = list(self.ads.get())
        ad, rest = ads[0], ads[1:]
        self.ads.update(rest)
        count = self.counts.get(ad) - 1
        if count:
            self.counts.put(ad, count)
        else:
            self.counts.remove(ad)
        yield ("aged", ctx.get_current_key().name, ad, count)


class CountOnColumns(KeyedColumnFunction):
    """The same counts, by user and ad, on columns."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.counts = runtime_context.get_column_state(ColumnStateDescriptor("counts", Types.INT()))

    def process_columns(self, events: KeyedColumns, ctx: KeyedColumnFunction.Context) -> None:
        seen = ~events.fired
        counts = self.counts.running_sum(events.rows, numpy.where(seen, 1, -1))
        ctx.register_event_time_timers(seen, events.times[seen] + 10_000)
        what = numpy.where(seen, "view", "aged").tolist()
        keys = events.keys(numpy.arange(len(events)))
        values = zip(what, keys, counts.tolist(), events.times.tolist(), strict=True)
        ctx.collect(numpy.arange(len(events)), list(values))


def records(kill_driver: bool, kill_worker: bool) -> list[Any]:
    result: list[Any] = []
    number = 0
    for batch in range(BATCHES):
        for _ in range(VIEWS_PER_BATCH):
            number += 1
            result.append((f"user-{number * 7 % 10}", f"ad-{number * 3 % 4}", number * 400))
            if kill_worker and batch == 3 and number % VIEWS_PER_BATCH == 10:
                result.append(KILL_WORKER)
        result.append(CUT)
        if kill_driver and batch == 4:
            result.append(KILL_DRIVER)
    return result


def main(settings: dict[str, Any]) -> None:
    configuration = Configuration.from_dict(
        {
            "millpond.master": settings.get("master", "local[2]"),
            "parallelism.default": 2,
            "execution.checkpointing.dir": settings["checkpoints"],
            **settings.get("configuration", {}),
        }
    )
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    if settings.get("modules"):
        environment.add_python_file(settings["modules"])
    if settings.get("restart"):
        environment.get_config().set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
    source = MarkedSource(
        records(settings.get("kill_driver", False), settings.get("kill_worker", False)),
        settings["marks"],
    )
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda view, _: view[2]
    )
    views = environment.from_source(source, strategy, "views")
    events = (
        views.key_by(lambda view: User(view[0]))
        .process(
            CountViews(
                settings.get("kill_at"),
                settings.get("kill_signal", signal.SIGKILL),
                settings["marks"],
            )
        )
        .uid("count")
    )
    totals = (
        events.map(lambda event: (event[0], event[2], 1))
        .key_by(lambda event: event[:2])
        .sum(2)
        .uid("totals")
    )
    columns = views.key_by(fields(0, 1)).process_columns(CountOnColumns()).uid("columns")
    for stream, name in ((events, "events"), (totals, "totals"), (columns, "columns")):
        path = f"{settings['output']}/{name}"
        stream.sink_to(FileSink.for_row_format(path, Encoder.simple_string_encoder()).build())
    environment.execute("capping")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
