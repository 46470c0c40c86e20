"""Tools for users' tests: an operator harness, a manual clock, a source with marks, the direct executor.

    from millpond.testing import KeyedHarness, direct_environment

`direct_environment()` is a StreamExecutionEnvironment whose jobs run in the calling process.
"""

from millpond.testing.clock import ManualClock
from millpond.testing.direct import direct_environment
from millpond.testing.harness import Harness, KeyedHarness, Watermark
from millpond.testing.marked_source import CUT, FAIL, KILL_DRIVER, KILL_WORKER, MarkedSource

__all__ = [
    "CUT",
    "FAIL",
    "KILL_DRIVER",
    "KILL_WORKER",
    "Harness",
    "KeyedHarness",
    "ManualClock",
    "MarkedSource",
    "Watermark",
    "direct_environment",
]
