"""The capping job in plain PySpark: transformWithState, a state call per access.

python spark_job.py SETTINGS_JSON    prints a line of JSON per run
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor

CAP = 3
WINDOW_MS = 5 * 86_400_000


class Cap(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.handle = handle
        self.counts = handle.getMapState("counts", "ad STRING", "count INT")
        self.ends = handle.getMapState("ends", "time BIGINT", "ad STRING")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N803
        for row in rows:
            ad = (row.ad,)
            count = (self.counts.getValue(ad)[0] if self.counts.containsKey(ad) else 0) + 1
            self.counts.updateValue(ad, (count,))
            ends_at_ms = row.time_ms + WINDOW_MS
            self.ends.updateValue((ends_at_ms,), ad)
            self.handle.registerTimer(ends_at_ms)
            if count == CAP:
                yield Row(text=f"cap,{key[0]},{row.ad},{row.time_ms}")

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:  # noqa: N803
        time_ms = (expiredTimerInfo.getExpiryTimeInMs(),)
        ad = self.ends.getValue(time_ms)
        self.ends.removeKey(time_ms)
        count = self.counts.getValue(ad)[0] - 1
        if count:
            self.counts.updateValue(ad, (count,))
        else:
            self.counts.removeKey(ad)
        if count == CAP - 1:
            yield Row(text=f"free,{key[0]},{ad[0]},{time_ms[0]}")

    def close(self) -> None:
        pass


def run(session: Any, files: list[str], output: str, state: str) -> float:
    source = f"{state}-source"
    os.makedirs(source)
    for path in files:
        shutil.copy(path, source)
    views = (
        session.readStream.schema("user STRING, ad STRING, time_ms BIGINT")
        .csv(source)
        .selectExpr("*", "timestamp_millis(time_ms) AS time")
        .withWatermark("time", "30 seconds")
    )
    capped = views.groupBy("user").transformWithState(Cap(), "text STRING", "append", "EventTime")
    started = time.monotonic()
    (
        capped.writeStream.format("text")
        .option("checkpointLocation", state)
        .option("path", output)
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
    return time.monotonic() - started


def main(settings: dict[str, Any]) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    state_store = "spark.sql.streaming.stateStore"
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config(f"{state_store}.providerClass", provider)
        .config(f"{state_store}.rocksdb.changelogCheckpointing.enabled", "true")
        .getOrCreate()
    )
    for number, files in enumerate(settings["runs"]):
        folder = settings["folder"]
        seconds = run(session, files, f"{folder}/output-{number}", f"{folder}/state-{number}")
        print(json.dumps({"seconds": seconds}), flush=True)
    session.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
