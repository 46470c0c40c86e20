"""State larger than the memory of its slots: speed beside Flink in Java with RocksDB, what checkpoints write,
how long a job takes to come back, and to take a savepoint.

Records first make all entries, one by one, then touch some of them again. Slots may use less than a quarter
of what the entries are (key, entry and value, without any encoding).
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.capping.systems import Workshop
from bench.measure import BenchmarkFailed, run_program
from bench.state.millpond_job import entry_bytes

_BATCH = 100_000
_TOUCHES = 20  # batches
_SLOTS = 2
_SHARE_OF_STATE = 0.245
_LEAST_SLOT_MB = 300  # Python, NumPy and Arrow take a third of it
_TIMEOUT_S = 1500
_SOURCE = Path(__file__).parent / "peers" / "StateJob.java"


def measure(entries: int, workshop: Path) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    try:
        results = {"entries": entries, "small": _millpond(entries // 10, folder / "small")}
        results["large"] = _millpond(entries, folder / "large")
        shutil.rmtree(folder / "large", ignore_errors=True)
        limit_s = 1.5 * results["large"]["seconds"]  # whoever is so much slower need not end
        for name in ("tuned", "default"):
            results[f"flink-{name}"] = _flink(entries, name, folder, workshop, limit_s)
        return results
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _millpond(entries: int, folder: Path) -> dict[str, Any]:
    state_bytes = entries * entry_bytes()
    slot_mb = max(_LEAST_SLOT_MB, int(state_bytes * _SHARE_OF_STATE / _SLOTS) >> 20)
    fill = entries // _BATCH
    last = fill + _TOUCHES
    print(f"Millpond, {entries:,} entries ...", file=sys.stderr, flush=True)
    first = _run(entries, folder, slot_mb, 0, last, savepoints=str(folder / "savepoints"))
    *batches, savepoint = first
    print("Millpond, from its job folder ...", file=sys.stderr, flush=True)
    (again, *_) = _run(entries, folder, slot_mb, batches[-1]["id"] + 2, last + 4)
    print("Millpond, from the savepoint ...", file=sys.stderr, flush=True)
    started = {"execution.state-recovery.path": savepoint["savepoint"]}
    shutil.rmtree(folder / "jobs")
    (restored, *_) = _run(entries, folder, slot_mb, 0, 1, **started)
    took_s = (_end_ms(batches[-1]) - batches[0]["started_ms"]) / 1000
    touches = batches[fill:]
    usual_s = statistics.median(batch["duration_ms"] for batch in touches) / 1000
    changed = _BATCH * entry_bytes()
    return {
        "entries": entries,
        "state_bytes": state_bytes,
        "slots_limit_mb": _SLOTS * slot_mb,
        "slots_peak_mb": max(line["slots_mb"] for line in first),
        "seconds": took_s,
        "records_per_s": len(batches) * _BATCH / took_s,
        "touches_per_s": _TOUCHES
        * _BATCH
        / ((_end_ms(touches[-1]) - touches[0]["started_ms"]) / 1000),
        "written_per_changed": sum(b["bytes_written"] for b in batches) / (len(batches) * changed),
        "usual_written_per_changed": statistics.median(b["bytes_written"] for b in touches)
        / changed,
        "savepoint_s": savepoint["seconds"],
        "from_folder_s": again["duration_ms"] / 1000 - usual_s,
        "from_savepoint_s": restored["duration_ms"] / 1000 - usual_s,
    }


def _end_ms(batch: dict[str, Any]) -> int:
    return int(batch["started_ms"] + batch["duration_ms"])


def _run(
    entries: int,
    folder: Path,
    slot_mb: int,
    first_batch: int,
    stop_after: int,
    savepoints: str | None = None,
    **more: str,
) -> list[dict[str, Any]]:
    configuration = {
        "millpond.master": f"local[{_SLOTS}]",
        "parallelism.default": _SLOTS,
        "execution.checkpointing.dir": str(folder / "jobs"),
        "state.backend.type": "rocksdb",
        "state.backend.rocksdb.block.cache-size": "24mb",
        "state.backend.rocksdb.writebuffer.size": "16mb",
        "state.backend.rocksdb.writebuffer.count": 2,
        "millpond.slot.memory-mb": slot_mb,
        **more,
    }
    settings = {
        "entries": entries,
        "batch": _BATCH,
        "touch_batches": 2 * _TOUCHES,
        "first_batch": first_batch,
        "stop_after": stop_after,
        "savepoints": savepoints,
        "configuration": configuration,
    }
    command = [sys.executable, "-m", "bench.state.millpond_job", json.dumps(settings)]
    return run_program(command, _TIMEOUT_S).lines


def _flink(
    entries: int, name: str, folder: Path, workshop_folder: Path, limit_s: float
) -> dict[str, Any]:
    """Memory beside the heap: as much as Millpond's slots have, all in all."""
    print(f"Flink in Java, RocksDB, {name} ...", file=sys.stderr, flush=True)
    workshop = Workshop(workshop_folder)
    path = f"{workshop.flink_classes(_SOURCE)}:{workshop.flink_jars()}"
    opens = [f"--add-opens=java.base/java.{p}=ALL-UNNAMED" for p in ("util", "lang")]
    records = entries + _TOUCHES * _BATCH
    managed_mb = int(entries * entry_bytes() * _SHARE_OF_STATE) >> 20
    command = [
        "java", "-Xmx2g", *opens, "-cp", path, _SOURCE.stem, "3s", f"{folder}/flink-{name}",
        str(_SLOTS), f"{managed_mb}m", str(entries), str(records), name,
    ]  # fmt: skip
    try:
        seconds = run_program(command, limit_s).lines[-1]["seconds"]
        return {"seconds": seconds, "records_per_s": records / seconds}
    except BenchmarkFailed as failure:
        return {"failed": str(failure).splitlines()[0], "limit_s": limit_s, "records": records}


def table(results: dict[str, Any]) -> str:
    large, small = results["large"], results["small"]
    gigabytes = large["state_bytes"] / 1e9
    lines = [
        f"{large['entries']:,} entries, {gigabytes:.2f} GB; slots may use {large['slots_limit_mb']:,} MB "
        f"together ({large['slots_limit_mb'] * 1048576 / large['state_bytes']:.1%}), and used "
        f"{large['slots_peak_mb']:,.0f} MB",
        "",
        "| system | records/s | Millpond is |",
        "|---|---|---|",
        f"| Millpond, RocksDB | {large['records_per_s']:,.0f} | |",
    ]
    for name, text in (
        ("default", "Flink 2.3 in Java, RocksDB as it comes"),
        ("tuned", "the same with bloom filters and partitioned index"),
    ):
        flink = results[f"flink-{name}"]
        if "failed" in flink:
            most = flink["records"] / flink["limit_s"]
            ratio = large["records_per_s"] / most
            lines.append(f"| {text} | less than {most:,.0f} | more than {ratio:.2f}x (goal 1.5x) |")
        else:
            ratio = large["records_per_s"] / flink["records_per_s"]
            lines.append(f"| {text} | {flink['records_per_s']:,.0f} | {ratio:.2f}x (goal 1.5x) |")
    lines += ["", "| | " + f"{small['entries']:,} entries | {large['entries']:,} entries | goal |"]
    lines += ["|---|---|---|---|"]
    rows = [
        ("records/s, entries made and touched", "records_per_s", ",.0f", ""),
        ("records/s, entries touched", "touches_per_s", ",.0f", ""),
        ("checkpointed bytes per changed byte, all batches", "written_per_changed", ".2f", "<= 3"),
        ("the same, the usual batch", "usual_written_per_changed", ".2f", "<= 3"),
    ]
    for text, name, form, goal in rows:
        lines.append(f"| {text} | {small[name]:{form}} | {large[name]:{form}} | {goal} |")
    for text, name in [
        ("restore from the job folder, s per GB", "from_folder_s"),
        ("restore from a savepoint, s per GB", "from_savepoint_s"),
        ("savepoint, s per GB", "savepoint_s"),
    ]:
        per_gb = [own[name] / (own["state_bytes"] / 1e9) for own in (small, large)]
        lines.append(f"| {text} | {per_gb[0]:.1f} | {per_gb[1]:.1f} | |")
    return "\n".join(lines)
