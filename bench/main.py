"""Measures Millpond, and other systems for comparison, on this machine.

bin/bench capping            frequency capping, all systems in turn (about half an hour)
bin/bench capping --quick    Millpond and Flink in Java, one run each
bin/bench product            the frequency-capping app, Kafka in and Redis out, beside Flink (half an hour)
bin/bench windows            tumbling, sliding and session windows beside Flink in Java and plain Spark
bin/bench state              state larger than memory: speed beside Flink's RocksDB, checkpoints, restore
bin/bench latency            from source to sink at fixed rates, beside Flink in Java (half an hour)
bin/bench kafka              reading a topic: Spark's connector compared with librdkafka
bin/bench lookup             the look-up service of frequency capping at a fixed rate
bin/bench queryable          look-ups of queryable state at a fixed rate while a job runs
bin/bench state-size         cost of a batch against the size of the state
bin/bench scaling            frequency capping on one core and on two
bin/bench start-up           first job, second job
bin/bench recovery           kill -9 of each kind of process: seconds until the next result (half an hour)
bin/bench recovery --quick   the smallest state, each kind of process once
bin/bench state-access       one state access beside a dict
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench import report
from bench.capping import side_by_side
from bench.capping.systems import beside

RESULTS = Path("bench-results")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="bin/bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what",
        choices=[
            "capping",
            "product",
            "windows",
            "latency",
            "kafka",
            "lookup",
            "queryable",
            "state",
            "state-size",
            "scaling",
            "start-up",
            "recovery",
            "state-access",
        ],
    )
    parser.add_argument("--views", type=int, default=2_000_000)
    parser.add_argument("--users", type=int, default=200_000)
    parser.add_argument("--entries", type=int, default=10_000_000, help="of state")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--only",
        help="comma-separated systems of capping, kinds of windows, parts of product, rates of latency, "
        "backends or processes of recovery",
    )
    parser.add_argument("--state-gb", help="comma-separated sizes of the state of recovery")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--before",
        type=lambda folder: Path(folder).absolute(),
        metavar="FOLDER",
        help="another checkout of Millpond, to be measured in the same run (capping, windows, product)",
    )
    options = parser.parse_args()
    folder = RESULTS.absolute()
    if options.what == "capping":
        capping(options, folder)
    elif options.what == "product":
        from bench.capping import product

        found = product.measure(
            options.views,
            options.users,
            options.repeat,
            options.only,
            folder / "workshop",
            options.before,
        )
        report.save("product", found, folder)
        print(f"{report.machine()}\n\n{product.table(found)}\n")
    elif options.what == "windows":
        from bench.windows import side_by_side as windows

        results = windows.measure(
            options.views, options.users, options.repeat, options.only, folder, options.before
        )
        report.save("windows", results, folder)
        print(f"{report.machine()}\n\n{windows.table(results)}\n")
        if not options.only:
            sizes = windows.measure_sizes(options.views, options.users, options.repeat, folder)
            report.save("window-sizes", sizes, folder)
            print(f"{windows.sizes_table(sizes)}\n")
    elif options.what == "kafka":
        from bench import kafka_reading

        results = kafka_reading.measure(options.views, options.repeat, folder / "workshop")
        report.save("kafka", results, folder)
        print(f"{report.machine()}\n\n{kafka_reading.table(results)}")
    elif options.what == "lookup":
        from bench import lookup

        results = lookup.measure()
        report.save("lookup", results, folder)
        print(f"{report.machine()}\n\n{lookup.table(results)}")
    elif options.what == "queryable":
        from bench import queryable

        results = queryable.measure()
        report.save("queryable", results, folder)
        print(f"{report.machine()}\n\n{queryable.table(results)}")
    elif options.what == "latency":
        from bench.latency import side_by_side as latency

        results = latency.measure(options.only, folder / "workshop")
        report.save("latency", results, folder)
        print(f"{report.machine()}\n\n{latency.table(results)}")
    elif options.what == "state":
        from bench.state import side_by_side as state

        measured = state.measure(options.entries, folder / "workshop")
        report.save("state", measured, folder)
        print(f"{report.machine()}\n\n{state.table(measured)}\n")
    elif options.what == "state-size":
        from bench import state_size

        report.save("state-size", state_size.measure(), folder)
    elif options.what == "scaling":
        from bench.capping import scaling

        report.save("scaling", scaling.measure(options.views, options.users, folder), folder)
    elif options.what == "start-up":
        from bench import start_up

        start_up.main([])
    elif options.what == "recovery":
        from bench.recovery import kills

        sizes_gb = [float(size) for size in (options.state_gb or "").split(",") if size]
        results = kills.measure(
            sizes_gb or list(kills.SIZES_GB), options.only, options.repeat, options.quick
        )
        report.save("recovery", results, folder)
        print(f"{report.machine()}\n\n{kills.table(results)}")
    else:
        from bench import state_access

        results = state_access.measure(options.repeat)
        report.save("state-access", results, folder)
        print(f"{report.machine()}\n\n{state_access.table(results)}")


def capping(options: argparse.Namespace, folder: Path) -> None:
    if options.quick:
        options.repeat = 1
        options.only = options.only or "millpond,flink-hashmap,flink-rocksdb"
    systems = beside(side_by_side.chosen(options.only), options.before)
    results = side_by_side.measure(
        systems, options.views, options.users, options.repeat, folder / "workshop"
    )
    table = report.capping_table(results)
    path = report.save("capping", results, folder)
    report.plot_capping(results, folder / "capping.png")
    print(f"{report.machine()}\n\n{table}\n")
    print(f"Saved: {path}, {folder / 'capping.png'}", file=sys.stderr)


if __name__ == "__main__":
    main()
