"""The windows jobs in plain Spark: groupBy(window(...)), with a watermark and RocksDB state.

python spark_job.py SETTINGS_JSON    prints a line of JSON per run
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

os.environ["PYSPARK_PYTHON"] = sys.executable


def run(session: Any, kind: str, files: list[str], output: str, checkpoints: str) -> float:
    from pyspark.sql import functions as f

    folder = f"{checkpoints}-input"
    os.makedirs(folder)
    for path in files:
        os.symlink(path, f"{folder}/{os.path.basename(path)}")
    views = (
        session.readStream.schema("user STRING, ad STRING, ms LONG")
        .option("maxFilesPerTrigger", 2)
        .csv(folder)
        .withColumn("at", f.timestamp_millis("ms"))
        .withWatermark("at", "30 seconds")
    )
    if kind == "tumbling":
        results = views.groupBy(f.window("at", "1 hour"), "user").count()
    elif kind == "sliding":
        window = f.window("at", "1 hour", "1 minute")
        results = views.groupBy(window, "ad").agg(f.avg(f.col("ms") % 1000))
    else:
        results = views.groupBy(f.session_window("at", "6 hours"), "user").count()
    started = time.monotonic()
    query = (
        results.select(f.to_json(f.struct("*")).alias("value"))
        .writeStream.format("text")
        .option("path", output)
        .option("checkpointLocation", checkpoints)
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return time.monotonic() - started


def main(settings: dict[str, Any]) -> None:
    from pyspark.sql import SparkSession

    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.streaming.stateStore.providerClass", provider)
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "4g")
        .getOrCreate()
    )
    for number, files in enumerate(settings["runs"]):
        folder = settings["folder"]
        seconds = run(
            session,
            settings["kind"],
            files,
            f"{folder}/output-{number}",
            f"{folder}/state-{number}",
        )
        print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
