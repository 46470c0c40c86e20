"""What the `millpond` command tells a shell by its exit code."""

from __future__ import annotations

from enum import IntEnum

from millpond.errors import DispatcherUnreachableError, MillpondError, UnknownJobError


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2  # as argparse
    NO_DISPATCHER = 3
    NO_SUCH_JOB = 4
    INTERRUPTED = 130  # as a shell says after Ctrl-C


class UsageError(MillpondError):
    """The command line is wrong in a way that argparse cannot see."""


def code_of(problem: MillpondError) -> ExitCode:
    if isinstance(problem, UsageError):
        return ExitCode.USAGE
    if isinstance(problem, DispatcherUnreachableError):
        return ExitCode.NO_DISPATCHER
    if isinstance(problem, UnknownJobError):
        return ExitCode.NO_SUCH_JOB
    return ExitCode.FAILED
