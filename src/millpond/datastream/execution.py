"""How a program reaches what runs it.

The API stands below everything that plans and runs jobs, and imports none of it. It states here what it needs
from the layers above (`ExecutionService`) and finds the implementation by name when a program calls
`execute`. This is the only place in Millpond where a lower layer reaches a higher one.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from millpond.common.configuration import Configuration
from millpond.common.execution_config import ExecutionConfig
from millpond.common.job import JobClient
from millpond.datastream.stream_graph import StreamGraph

if TYPE_CHECKING:
    from millpond.datastream.data_stream_sink import CloseableIterator

_SERVICE = "millpond.executors.service"


@dataclass(frozen=True)
class Program:
    """What a job is made of: the graph, and the settings that apply to it."""

    graph: StreamGraph
    configuration: Configuration
    config: ExecutionConfig
    job_name: str | None = None
    chaining: bool = True


class ExecutionService(Protocol):
    """Runs programs, and shows how they would run."""

    def submit(self, program: Program) -> JobClient:
        """Start a job. Raise ProgramError, before anything runs, if the program is not valid."""

    def submit_and_collect(self, program: Program) -> CloseableIterator:
        """Start a job and return the records that reach its collecting sink, as they come."""

    def plan_as_json(self, program: Program) -> str:
        """Return the plan of a job, with the field names of Flink's plan JSON."""

    def draw_plan(self, program: Program) -> str:
        """Return the plan of a job, drawn for a terminal."""

    def spark_session(self) -> Any:
        """Return the process's SparkSession; start one if there is none."""


def execution_service() -> ExecutionService:
    """Return the service of the layers above, importing it on the first call."""
    return cast(ExecutionService, importlib.import_module(_SERVICE).SERVICE)
