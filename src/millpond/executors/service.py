"""Submits jobs: plans a program, chooses what runs it, starts it."""

from __future__ import annotations

import json
import queue
from collections.abc import Callable, Iterator
from typing import Any

from millpond.common import options
from millpond.common.configuration import Configuration
from millpond.datastream.data_stream_sink import CloseableIterator
from millpond.datastream.execution import ExecutionService, Program
from millpond.driver.executor import ExecutorFactory
from millpond.driver.planning import plan_job
from millpond.driver.running_job import RunningJob, listeners, now_ms
from millpond.errors import ProgramError
from millpond.plan.explain import draw, to_json
from millpond.plan.physical import JobPlan
from millpond.plan.preview import current_preview

Collect = Callable[[list[Any]], None]
_DIRECT, _SPARK = "direct", "spark"
_END = object()


class JobService(ExecutionService):
    """Runs programs on Spark or in the calling process. `datastream/execution.py` finds it by name."""

    def submit(self, program: Program) -> RunningJob:
        return self._submit(program, None)

    def submit_and_collect(self, program: Program) -> CloseableIterator:
        results: queue.Queue[Any] = queue.Queue()  # a list of values per batch, at last _END
        job = self._submit(program, results.put)
        job.get_job_execution_result().add_done_callback(lambda _: results.put(_END))

        def values() -> Iterator[object]:
            while (batch := results.get()) is not _END:
                yield from batch
            job.get_job_execution_result().result()

        def close() -> None:
            if not job.get_job_execution_result().done():
                job.cancel().result()

        return CloseableIterator(values(), close)

    def plan_as_json(self, program: Program) -> str:
        plan = _plan(program)
        return json.dumps(to_json(program.graph, plan, program.chaining), indent=2)

    def draw_plan(self, program: Program) -> str:
        return draw(program.graph, _plan(program), program.chaining)

    def spark_session(self) -> object:
        from millpond.executors.spark.session import get_session

        return get_session(Configuration())

    def _submit(self, program: Program, collect: Collect | None) -> RunningJob:
        _leave_if_only_the_plan_is_wanted(program)
        began_ms = now_ms()
        plan = _plan(program)
        executors = _executors(plan, program.configuration, collect)
        settings = program.configuration.to_dict()
        job = RunningJob(plan, executors, program.config, settings, began_ms)
        for listener in list(listeners):
            listener(job)
        return job.start()


SERVICE = JobService()


def _plan(program: Program) -> JobPlan:
    configuration, config = program.configuration, program.config
    parallelism = 1
    if not config.get_parallelism() and options.EXECUTOR.read(configuration) != _DIRECT:
        from millpond.executors.spark.session import default_parallelism

        parallelism = default_parallelism(configuration)
    return plan_job(program.graph, configuration, config, program.job_name, parallelism)


def _leave_if_only_the_plan_is_wanted(program: Program) -> None:
    """Hand over the plan and end the program, if it runs only for its plan: `millpond info app.py` does that
    (see `plan/preview.py`)."""
    preview = current_preview()
    if preview is None:
        return
    direct = options.EXECUTOR.read(program.configuration) == _DIRECT
    if not direct and not program.config.get_parallelism():
        master = options.MASTER.read(program.configuration)
        program.config.set_parallelism(preview.parallelism(master))
    plan = _plan(program)
    preview.take(
        to_json(program.graph, plan, program.chaining), draw(program.graph, plan, program.chaining)
    )


def _executors(
    plan: JobPlan, configuration: Configuration, collect: Collect | None
) -> ExecutorFactory:
    kind = options.EXECUTOR.read(configuration)
    if kind == _DIRECT:
        from millpond.executors.direct.executor import DirectExecutors

        return DirectExecutors(plan, collect)
    if kind == _SPARK:
        from millpond.executors.spark.executor import SparkExecutors
        from millpond.executors.spark.session import get_session, ship_python_files

        session = get_session(configuration, plan.parallelism)
        ship_python_files(session, configuration)
        return SparkExecutors(plan, configuration, session, collect)
    raise ProgramError(f"{options.EXECUTOR.key} must be {_SPARK} or {_DIRECT}, not '{kind}'.")
