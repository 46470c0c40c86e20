"""Frequency capping in small: who has seen an ad three times within ten seconds?

A stateful job in event time: views come out of order, each view ages out at its own time, and a
user is released again when enough of them have.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from millpond.common import Configuration, Duration, Types, WatermarkStrategy
from millpond.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from millpond.datastream.state import MapStateDescriptor

CAP, WINDOW_MS = 3, 10_000


class Cap(KeyedProcessFunction):
    """Per user: a count per ad, and which views end when."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.counts = runtime_context.get_map_state(
            MapStateDescriptor("counts", Types.STRING(), Types.INT())
        )
        self.ends = runtime_context.get_map_state(
            MapStateDescriptor("ends", Types.LONG(), Types.LIST(Types.STRING()))
        )
        self.views = runtime_context.get_metrics_group().counter("views")

    def process_element(self, view, ctx):
        user, ad, seen_at_ms = view
        self.views.inc()
        count = (self.counts.get(ad) or 0) + 1
        self.counts.put(ad, count)
        ends_at_ms = seen_at_ms + WINDOW_MS
        self.ends.put(ends_at_ms, [*(self.ends.get(ends_at_ms) or []), ad])
        ctx.timer_service().register_event_time_timer(ends_at_ms)
        if count == CAP:
            yield "CAP  ", user, ad, seen_at_ms

    def on_timer(self, timestamp, ctx):
        for ad in self.ends.get(timestamp):
            count = self.counts.get(ad) - 1
            if count:
                self.counts.put(ad, count)
            else:
                self.counts.remove(ad)
            if count == CAP - 1:
                yield "UNCAP", ctx.get_current_key(), ad, timestamp
        self.ends.remove(timestamp)


def views(count: int) -> list[tuple[str, str, int]]:
    chance = random.Random(7)
    return [
        (
            f"user-{chance.randrange(40):02d}",
            f"ad-{chance.randrange(4)}",
            i * 20 + chance.randrange(2000),
        )
        for i in range(count)
    ]


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Shows that something is going on, and for how long."""
    started, done = time.monotonic(), threading.Event()

    def show() -> None:
        while not done.wait(0.2):
            print(f"\r{text} ... {time.monotonic() - started:4.1f} s", end="", file=sys.stderr)

    if sys.stderr.isatty():
        threading.Thread(target=show, daemon=True).start()
    else:
        print(f"{text} ...", file=sys.stderr)
    try:
        yield
    finally:
        done.set()
        if sys.stderr.isatty():
            print(f"\r{text}: {time.monotonic() - started:.1f} s        ", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--views", type=int, default=5000, help="how many views to process")
    parser.add_argument("--master", default="local[*]", help="Spark master")
    options = parser.parse_args()

    environment = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"millpond.master": options.master})
    )
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_seconds(2)
    ).with_timestamp_assigner(lambda view, _: view[2])
    events = (
        environment.from_collection(views(options.views))
        .assign_timestamps_and_watermarks(strategy)
        .name("Views by log time")
        .key_by(lambda view: view[0])
        .process(Cap())
        .name("Cap per user and ad")
        .uid("cap")
    )
    print(f"{options.views} views of 4 ads by 40 users; the cap is {CAP} views in 10 s.\n")
    with waiting("Starting Spark"):
        results = events.execute_and_collect("demo")
    print()
    with waiting("Running the job"):
        changes = list(results)
    capped: set[tuple[str, str]] = set()
    most = 0
    for kind, user, ad, _ in changes:
        (capped.add if kind == "CAP  " else capped.discard)((user, ad))
        most = max(most, len(capped))
    print("\n   when      what   user     ad\n   --------------------------------")
    for kind, user, ad, time_ms in changes[:12]:
        print(f"   {time_ms / 1000:7.2f} s  {kind}  {user}  {ad}")
    print(f"   ... {max(0, len(changes) - 12)} more\n")
    print(
        f"{sum(kind == 'CAP  ' for kind, *_ in changes)} times somebody reached the cap; ", end=""
    )
    print(f"at most {most} pairs were capped at once; {len(capped)} are left at the end.")


if __name__ == "__main__":
    main()
