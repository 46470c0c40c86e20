"""Every example runs and prints what it should, on the direct executor and on Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
OUTPUT = {
    "word_count.py": ["('be', 1)", "('be', 2)", "('question', 1)", "('to', 2)"],
    "word_count.py --batch": ["('be', 2)", "('question', 1)", "('to', 2)"],
    "side_outputs.py": ["good> ('ann', 31)", 'bad> KeyError: {"user": "bob"}'],
    "connected_streams.py": ["o1 is paid", "o2 is not paid at 12000", "o3 is paid"],
    "columns.py": [
        "ann saw shoes at 6000: 3",
        "ann saw shoes at 17000: 2",
        "bob saw hats at 29000: 2",
    ],
    "tumbling_windows.py": [
        "to 3 times in the minute from 0",
        "be 1 times in the minute from 60000",
    ],
    "sliding_windows.py": ["oslo: 3.0 until minute 5", "oslo: 15.0 until minute 15"],
    "session_windows.py": [
        "ann: 3 clicks from minute 0 to 35",
        "bob: 1 clicks from minute 90 to 90",
    ],
    "count_windows.py": ["three> ('all', 15)", "sliding> ('all', 10)", "sliding> ('all', 26)"],
    "late_data.py": ["total> ('shop', 1000, 6)", "too late> ('shop', 3000, 9)"],
    "joins.py": [
        "within an hour> o1 was paid after 30 minutes",
        "same day> o2 was paid on the same day",
    ],
    "queryable_state.py": [
        "ann: {'home': 2, 'shop': 1}",
        "ann at home: 2",
        "pages: {'home': ['home', 3], 'shop': ['shop', 1]}",
        "The queryable state 'views' has nothing for key 'eve'.",
    ],
    "own_source_and_sink.py": ["0 at 0", "1 at 1000", "16 at 4000", "4 at 2000", "9 at 3000"],
}

ONLY_ON_SPARK = {"queryable_state.py"}  # slots answer


def run(example: str, *settings: str) -> list[str]:
    name, *arguments = example.split()
    command = [sys.executable, "-m", "millpond", "run", *settings, str(EXAMPLES / name)]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("example", [own for own in OUTPUT if own not in ONLY_ON_SPARK])
def test_example_on_the_direct_executor(example: str) -> None:
    lines = run(example, "-D", "millpond.executor=direct", "-p", "1")
    assert [line for line in OUTPUT[example] if line not in lines] == []
    if "--batch" in example:
        assert "('be', 1)" not in lines


@pytest.mark.spark
@pytest.mark.parametrize(
    "example", ["connected_streams.py", "own_source_and_sink.py", *ONLY_ON_SPARK]
)
def test_example_on_spark(example: str) -> None:
    lines = run(example, "--master", "local[2]")
    assert [line for line in OUTPUT[example] if line not in lines] == []


def test_every_example_is_tested() -> None:
    tested = {example.split()[0] for example in OUTPUT}
    assert {path.name for path in EXAMPLES.glob("*.py")} == tested
