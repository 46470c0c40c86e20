"""Exit codes of the `millpond` command."""

from __future__ import annotations

from enum import IntEnum

from millpond.errors import DispatcherUnreachableError, MillpondError, UnknownJobError


class ExitCode(IntEnum):
    """The exit codes that scripts can rely on."""

    OK = 0
    FAILED = 1
    USAGE = 2  # the code that argparse uses
    NO_DISPATCHER = 3
    NO_SUCH_JOB = 4
    INTERRUPTED = 130  # what shells report after Ctrl-C


class UsageError(MillpondError):
    """A command line that is wrong in a way that argparse cannot detect."""


def code_of(problem: MillpondError) -> ExitCode:
    """Return the exit code for an error; FAILED if there is no code of its own for it."""
    if isinstance(problem, UsageError):
        return ExitCode.USAGE
    if isinstance(problem, DispatcherUnreachableError):
        return ExitCode.NO_DISPATCHER
    if isinstance(problem, UnknownJobError):
        return ExitCode.NO_SUCH_JOB
    return ExitCode.FAILED
