"""Compares Millpond with PyFlink and writes docs/compatibility.md.

    .venv/bin/python tools/compatibility.py            # downloads the apache-flink wheel, runs all
    .venv/bin/python tools/compatibility.py --api      # only names, from tests/api/pyflink.json

PyFlink's names are read from its wheel; its example programs run from there, with `pyflink` replaced
by `millpond` in their imports. Nothing of the wheel is kept but names.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import re
import subprocess
import sys
import tempfile
import textwrap
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
NAMES_FILE = ROOT / "tests" / "api" / "pyflink.json"
PAGE = ROOT / "docs" / "compatibility.md"
VERSION = "2.3.0"
MODULES = [
    "common.configuration",
    "common.execution_config",
    "common.job_client",
    "common.job_execution_result",
    "common.restart_strategy",
    "common.serialization",
    "common.time",
    "common.typeinfo",
    "common.types",
    "common.watermark_strategy",
    "datastream.checkpoint_config",
    "datastream.connectors.base",
    "datastream.connectors.file_system",
    "datastream.connectors.number_seq",
    "datastream.data_stream",
    "datastream.functions",
    "datastream.output_tag",
    "datastream.slot_sharing_group",
    "datastream.state",
    "datastream.stream_execution_environment",
    "datastream.time_domain",
    "datastream.timerservice",
    "datastream.window",
    "metrics.metricbase",
]
# PyFlink's own inside, or wrappers of Java objects that have no meaning here.
INTERNAL = re.compile(
    r"^(Internal|Java|_)|Wrapper$|Descriptor$(?<!StateDescriptor)|"
    r"^(FunctionWrapper|PassThrough\w+|SupportsPreprocessing|StreamTransformer|Min)$"
)
INTERNAL_METHODS = re.compile(
    r"^_|^get_java_|^to_j_|^get_transformer|^to_internal_type|^from_internal_type|need_conversion|^register_next_fire_"
)
DIFFERENCES = """\
## What behaves differently

- The watermark advances with every record, not every 200 ms, and inside `on_timer` it is the timer's time.
  See `docs/decisions/0003-event-time-passes-through-every-instant.md`.
- `open` is called again when a slot, the process in which a subtask runs, has died. Keep what must not be
  lost in state, not in attributes.
- Every batch is a checkpoint: `enable_checkpointing` changes nothing. Set `execution.checkpointing.dir` to
  make checkpoints outlive the process.
- Sliding windows are put together from panes: `AggregateFunction.merge` is used, and elements are combined
  in the order of panes. See `docs/decisions/0014-windows.md`. What a trigger or window function keeps for a
  window is removed with it.
- `print` prints on the driver, whatever the cluster.
- `Types.FLOAT` does not truncate a number to 32 bits. `Types.INT` and the other integer types refuse
  numbers that are out of range.
- A file sink joins what small epochs have written into part files of the rolling policy's size, for Parquet
  as well; with `on_checkpoint_rolling_policy` there is a file for every epoch. See
  `docs/decisions/0021-files-and-formats.md`.
- The row type of Parquet files is `Types.ROW_NAMED` or a `pyarrow.Schema`; their timestamps are UTC.
- A source that was not asked to distribute its records passes them to the following operators in the order
  in which it emits them, with any parallelism.
""".splitlines()
EXAMPLES = "pyflink/examples/datastream/"
EXAMPLE_TIMEOUT_S = 120


def wheel_names(wheel: Path) -> dict[str, dict[str, dict[str, list[str]]]]:
    """module -> class -> method -> parameter names."""
    found: dict[str, dict[str, dict[str, list[str]]]] = {}
    with zipfile.ZipFile(wheel) as archive:
        for module in MODULES:
            source = archive.read(f"pyflink/{module.replace('.', '/')}.py").decode()
            found[module] = {
                node.name: _methods(node)
                for node in ast.parse(source).body
                if isinstance(node, ast.ClassDef) and not INTERNAL.search(node.name)
            }
    return found


def _methods(node: ast.ClassDef) -> dict[str, list[str]]:
    methods: dict[str, list[str]] = {}
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and not INTERNAL_METHODS.search(item.name):
            arguments = [a.arg for a in item.args.args if a.arg not in ("self", "cls")]
            methods[item.name] = arguments
    return methods


def missing_names() -> dict[str, list[str]]:
    """class or class.method that PyFlink has and Millpond has not, by module."""
    names: dict[str, Any] = json.loads(NAMES_FILE.read_text())
    missing: dict[str, list[str]] = {}
    for module, classes in names.items():
        lacking = []
        for class_name, methods in classes.items():
            found = _lookup(module, class_name)
            if found is None:
                lacking.append(class_name)
            else:
                lacking += [f"{class_name}.{m}" for m in methods if not hasattr(found, m)]
        if lacking:
            missing[module] = sorted(lacking)
    return missing


def wrong_parameters() -> list[str]:
    """Methods whose parameter names differ from PyFlink's, so that keyword calls would break."""
    import inspect

    names: dict[str, Any] = json.loads(NAMES_FILE.read_text())
    wrong = []
    for module, classes in names.items():
        for class_name, methods in classes.items():
            found = _lookup(module, class_name)
            for method, parameters in methods.items():
                own = getattr(found, method, None)
                if own is None or not callable(own):
                    continue
                mine = [p for p in inspect.signature(own).parameters if p != "self"]
                if mine[: len(parameters)] != parameters and "args" not in parameters:
                    wrong.append(f"{class_name}.{method}: {parameters} against {mine}")
    return wrong


def _lookup(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(f"millpond.{module}"), name, None)
    except ImportError:  # also MissingNameError
        return None


def run_examples(wheel: Path, folder: Path) -> list[tuple[str, str]]:
    """(example, "runs" or why not) of every DataStream example."""
    results = []
    with zipfile.ZipFile(wheel) as archive:
        names = [n for n in archive.namelist() if n.startswith(EXAMPLES) and n.endswith(".py")]
    for name in sorted(names):
        print(f"running {name} ...", file=sys.stderr)
        short = name.removeprefix(EXAMPLES)
        results.append((short, _result(wheel, short, folder)))
    return results


def run_example(wheel: Path, name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run one of the wheel's examples, with its imports changed and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        source = archive.read(EXAMPLES + name).decode()
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(re.sub(r"\b(from|import) pyflink\b", r"\1 millpond", source))
    return subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        timeout=EXAMPLE_TIMEOUT_S,
        check=False,
        cwd=path.parent,
    )


def _result(wheel: Path, name: str, folder: Path) -> str:
    try:
        done = run_example(wheel, name, folder)
    except subprocess.TimeoutExpired:
        return f"did not end within {EXAMPLE_TIMEOUT_S} s: it waits for a server, such as Kafka"
    if done.returncode == 0:
        return "runs"
    errors = [line for line in done.stderr.splitlines() if re.match(r"[\w.]+Error\b.*: ", line)]
    wanted = [line for line in errors if "millpond" in line.split(": ")[0]] or errors
    return "no: " + re.sub(r"^([\w.]+Error: )+", "", wanted[-1]).rstrip(".")


def wrapped(item: str) -> str:
    """Return an item of a Markdown list in lines that are no longer than a page's may be."""
    return textwrap.fill(
        item, 116, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def page(examples: list[tuple[str, str]] | None) -> str:
    old = PAGE.read_text() if PAGE.exists() else ""
    if examples is None:
        kept = re.search(r"<!-- examples -->\n(.*?)<!-- end -->", old, re.DOTALL)
        table = kept.group(1) if kept else ""
    else:
        table = "".join(wrapped(f"- `{name}`: {result}") + "\n" for name, result in examples)
    lines = [
        "# Compatibility with PyFlink",
        "",
        f"Generated by `tools/compatibility.py` for PyFlink {VERSION}; a test keeps it up to date.",
        "",
        "## PyFlink's DataStream examples",
        "",
        "The examples ran with `pyflink` replaced by `millpond` in the imports and nothing else changed.",
        "",
        "<!-- examples -->",
        f"{table}<!-- end -->",
        "",
        *DIFFERENCES,
        "",
        "## Names that are not there yet",
        "",
        "Importing or calling one raises an error that names it and says what to use instead.",
        "",
    ]
    for module, names in missing_names().items():
        lines.append(wrapped(f"- `{module}`: " + ", ".join(f"`{name}`" for name in names)))
    return "\n".join(lines) + "\n"


def download_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
    subprocess.run([*command, str(folder), f"apache-flink=={VERSION}"], check=True)
    return next(folder.glob("apache_flink-*.whl"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--api", action="store_true", help="names only; keep the examples' results")
    parser.add_argument("--wheel", type=Path, help="an apache-flink wheel that is already here")
    options = parser.parse_args()
    examples = None
    if not options.api:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            wheel = options.wheel or download_wheel(folder)
            NAMES_FILE.write_text(json.dumps(wheel_names(wheel), indent=1, sort_keys=True) + "\n")
            examples = run_examples(wheel, folder / "examples")
    PAGE.write_text(page(examples))
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
