"""Look state of a running job up by key, from outside the job."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from millpond.common import Duration, Types, WatermarkStrategy
from millpond.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millpond.datastream.connectors.file_system import FileSource, StreamFormat
from millpond.datastream.state import MapStateDescriptor, ReducingStateDescriptor
from millpond.queryable import QueryableStateClient, UnknownKeyError


class CountViews(KeyedProcessFunction):
    """How often each user has seen each page."""

    def open(self, runtime_context):
        views = MapStateDescriptor("views", Types.STRING(), Types.LONG())
        views.set_queryable("views")
        self.views = runtime_context.get_map_state(views)

    def process_element(self, view, ctx):
        page = view[1]
        self.views.put(page, (self.views.get(page) or 0) + 1)
        yield page, 1


def start(folder: Path):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.get_checkpoint_config().set_checkpoint_storage_dir(str(folder / "jobs"))
    source = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(folder / "in")
    )
    lines = env.from_source(
        source.monitor_continuously(Duration.of_millis(100)).build(),
        WatermarkStrategy.no_watermarks(),
        "lines",
    )
    views = lines.map(lambda line: tuple(line.split()))
    pages = views.key_by(lambda view: view[0], Types.STRING()).process(CountViews())
    total = ReducingStateDescriptor("total", lambda a, b: (a[0], a[1] + b[1]), None)
    pages.key_by(lambda page: page[0], Types.STRING()).as_queryable_state("pages", total)
    return env.execute_async("views")


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    (folder / "in").mkdir()
    (folder / "new").write_text("ann home\nann shop\nbob home\nann home\n")
    os.rename(folder / "new", folder / "in" / "first")
    job = start(folder)
    with QueryableStateClient.for_folder(folder / "jobs" / "views") as client:
        while not client.get_many(None, "views", ["ann"], timeout_s=120):
            time.sleep(0.1)  # the first batch is on its way
        print("ann:", client.get(None, "views", "ann"))
        print("ann at home:", client.get(None, "views", "ann", entry="home"))
        print("pages:", client.get_many(None, "pages", ["home", "shop", "help"]))
        try:
            client.get(None, "views", "eve")
        except UnknownKeyError as problem:
            print(problem)
    job.cancel().result()


if __name__ == "__main__":
    main()
