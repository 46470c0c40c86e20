"""The tasks that are open in a process: opened functions, kept from one batch to the next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from millpond.core import codec
from millpond.datastream.state_backend import StateBackend
from millpond.engine.chain import OperatorChain
from millpond.engine.exchange.router import Router
from millpond.engine.state_views import StateViews
from millpond.engine.tasks import AnyTask, make_task
from millpond.plan.physical import JobPlan, TaskPlan


class OpenTasks:
    """Tasks by task id and subtask, opened when they are first needed.

    `blob` is the pickled plan, from which every subtask gets its own copy of the user's functions."""

    def __init__(
        self, plan: JobPlan, blob: bytes, attempt: int, backend: StateBackend, views: StateViews
    ) -> None:
        self._blob = blob
        self._attempt = attempt
        self._backend = backend
        self._views = views
        self._parallelism = plan.parallelism
        self._tasks: dict[tuple[int, int], AnyTask] = {}

    def find(self, plan: TaskPlan, subtask: int) -> AnyTask | None:
        """Return a task if it is open."""
        return self._tasks.get((plan.id, subtask))

    def get(self, plan: TaskPlan, subtask: int) -> AnyTask:
        """Return a task, and open it if it is not."""
        task = self._tasks.get((plan.id, subtask))
        if task is None:
            job: JobPlan = codec.loads(self._blob)
            task_plan = job.tasks[plan.id]
            router = Router(job, task_plan, job.settings.frame_records)
            chain = OperatorChain(job, task_plan, subtask, router, self._attempt, self._backend)
            task = make_task(chain)
            chain.clock.declare = partial(self._views.declare, job, plan.id)
            chain.open()
            self._views.check()
            self._tasks[plan.id, subtask] = task
        return task

    def renew(self, plan: TaskPlan, old: AnyTask) -> AnyTask:
        """Replace a task whose function remembers, in its attributes, something else than the log says."""
        del self._tasks[plan.id, old.chain.subtask]
        old.chain.close()
        return self.get(plan, old.chain.subtask)

    @contextmanager
    def reset_on_failure(self, task: AnyTask) -> Iterator[None]:
        """Reset the task if the block fails, or is left half-way: it will be used again. A function that
        has operator state remembers it in its attributes, so its task is dropped."""
        try:
            yield
        except BaseException:
            task.reset()
            if task.chain.task.level > 0 and task.chain.operator_state:
                self._tasks.pop((task.chain.task.id, task.chain.subtask), None)
            raise

    def close_level(self, level: int, partition: int | None = None) -> None:
        """Close those functions of a level that are open here, in a partition or in all of them."""
        for key, task in list(self._tasks.items()):
            own = task.chain.subtask % self._parallelism
            if task.chain.task.level == level and partition in (None, own):
                del self._tasks[key]
                task.chain.close()
