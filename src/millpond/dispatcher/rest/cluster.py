"""Routes about the cluster: overview, configuration, task managers, metrics, disposal of savepoints."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from millpond import __version__
from millpond.common.job import JobStatus
from millpond.dispatcher.messages import Json
from millpond.dispatcher.rest import checkpoint_views, prometheus, views
from millpond.dispatcher.rest.jobs import TriggerId, dispatcher_of, now_ms
from millpond.dispatcher.service import NoSuchThing

router = APIRouter(tags=["cluster"])


class DisposalRequest(BaseModel):
    """The savepoint to delete, with Flink's field name."""

    model_config = ConfigDict(populate_by_name=True)
    savepoint_path: str = Field(alias="savepoint-path", min_length=1, max_length=4096)


@router.get("/overview")
def overview(request: Request) -> Json:
    """Count slots and jobs, and say who leads."""
    dispatcher = dispatcher_of(request)
    reports = dispatcher.jobs()
    statuses = [JobStatus.of(report) for report in reports]
    managers = views.task_managers(reports)
    total, free = request.app.state.resources.slots(reports)
    return {
        "taskmanagers": len(managers),
        "slots-total": total,
        "slots-available": free,
        "jobs-running": sum(not status.is_globally_terminal_state() for status in statuses),
        "jobs-finished": statuses.count(JobStatus.FINISHED),
        "jobs-cancelled": statuses.count(JobStatus.CANCELED),
        "jobs-failed": statuses.count(JobStatus.FAILED),
        "flink-version": views.FLINK_VERSION,
        "flink-commit": views.REVISION,
        "millpond-version": __version__,
        "leader": dispatcher.leadership.leader_address(),
        "is-leader": dispatcher.leadership.epoch is not None,
    }


@router.get("/config")
def config(request: Request) -> Json:
    """Tell a dashboard the version, the time zone, and what it may offer."""
    security = request.app.state.security
    return {
        "refresh-interval": 1000,
        "timezone-name": time.tzname[0],
        "timezone-offset": -time.timezone * 1000,
        "flink-version": views.FLINK_VERSION,
        "flink-revision": views.REVISION,
        "features": {
            "web-submit": security.uploads_allowed,
            "web-cancel": True,
            "web-rescale": False,
            "web-history": False,
        },
    }


@router.get("/jobmanager/config")
def settings(request: Request) -> list[dict[str, str]]:
    """List the settings that all jobs get by default."""
    return [{"key": key, "value": value} for key, value in dispatcher_of(request).settings.items()]


@router.get("/taskmanagers")
def task_managers(request: Request) -> Json:
    """List the Spark executors of running jobs."""
    return {"taskmanagers": views.task_managers(dispatcher_of(request).jobs())}


@router.get("/taskmanagers/{task_manager_id}")
def task_manager(request: Request, task_manager_id: Annotated[str, Path(max_length=200)]) -> Json:
    """Describe one Spark executor of a running job."""
    for manager in views.task_managers(dispatcher_of(request).jobs()):
        if manager["id"] == task_manager_id:
            return manager
    raise NoSuchThing(f"There is no task manager {task_manager_id}.")


@router.get("/metrics", response_class=Response)
def metrics(request: Request) -> Response:
    """Return the metrics of all jobs in the text format of Prometheus."""
    content = prometheus.exposition(dispatcher_of(request).jobs(), now_ms())
    return Response(content, media_type=prometheus.CONTENT_TYPE)


@router.post("/savepoint-disposal", status_code=202)
def dispose(request: Request, asked: DisposalRequest) -> Json:
    """Delete a savepoint in the background; the request-id is for asking whether it is done."""
    return {"request-id": dispatcher_of(request).dispose(asked.savepoint_path)}


@router.get("/savepoint-disposal/{trigger_id}")
def disposal(request: Request, trigger_id: TriggerId) -> Json:
    """Say whether a savepoint has been deleted, and if that failed, why."""
    return checkpoint_views.trigger(dispatcher_of(request).disposal(trigger_id))


@router.delete("/cluster")
def shut_down(request: Request) -> Json:
    """End this dispatcher and the processes of all jobs. The jobs resume when it is started again."""
    request.app.state.shut_down()
    return {}
