"""Names for the JSON that dispatchers, job managers and REST clients exchange."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from millpond.common.job import JobStatus

Json = dict[str, Any]  # any JSON object
Report = Json  # a job report, see docs/job-report.md


class Command(TypedDict):
    """An order for a job manager: cancel, savepoint or stop. `epoch` is that of the leader that gave it."""

    id: str
    kind: str
    epoch: int
    directory: NotRequired[str | None]
    drain: NotRequired[bool]


class Answer(TypedDict, total=False):
    """What became of a request: the path of a savepoint, or an error; neither if there is nothing to tell."""

    path: str
    error: str


class ExceptionEntry(TypedDict):
    """One of the exceptions in a job report. The field names are Flink's."""

    timestamp: int
    exceptionName: str
    stacktrace: str
    taskName: str | None


class ApplicationMeta(TypedDict):
    """What is stored about an uploaded program. `uploaded` is a time in milliseconds."""

    id: str
    name: str
    uploaded: int


def has_ended(report: Report) -> bool:
    """Return True if the job has finished, failed or been cancelled, so that nobody starts it again."""
    return JobStatus.of(report).is_globally_terminal_state()
