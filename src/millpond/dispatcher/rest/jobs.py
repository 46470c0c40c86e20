"""/jobs: what runs and has run, and what can be asked of it."""

from __future__ import annotations

import time
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Body, HTTPException, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field

from millpond.dispatcher.rest import checkpoint_views, views
from millpond.dispatcher.service import Dispatcher, NoSuchThing
from millpond.dispatcher.supervisor import tail
from millpond.errors import RetryLaterError
from millpond.queryable.locations import describe

router = APIRouter(tags=["jobs"])
Jid = Annotated[str, Path(description="32 hex digits", pattern="^[0-9a-f]{32}$")]
Vid = Annotated[str, Path(description="id of a vertex", pattern="^[0-9a-f]{32}$")]
TriggerId = Annotated[str, Path(description="request-id", pattern="^[0-9a-f]{32}$")]
_ACCEPTED = 202


class SavepointRequest(BaseModel):
    """Flink's names; the folder may be left out."""

    model_config = ConfigDict(populate_by_name=True)
    target_directory: str | None = Field(None, alias="target-directory", max_length=4096)
    cancel_job: bool = Field(False, alias="cancel-job")


class StopRequest(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    target_directory: str | None = Field(None, alias="targetDirectory", max_length=4096)
    drain: bool = False


def dispatcher_of(request: Request) -> Dispatcher:
    return request.app.state.dispatcher  # type: ignore[no-any-return]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# --- all jobs ------------------------------------------------------------------------------------


@router.get("/jobs")
def jobs(request: Request) -> dict[str, Any]:
    """Ids and states of all jobs."""
    reports = dispatcher_of(request).jobs()
    return {"jobs": [{"id": own["jid"], "status": own["state"]} for own in reports]}


@router.get("/jobs/overview")
def jobs_overview(request: Request) -> dict[str, Any]:
    """All jobs, with times and numbers of tasks."""
    now = now_ms()
    return {"jobs": [views.job_overview(own, now) for own in dispatcher_of(request).jobs()]}


@router.get("/jobs/metrics")
def metrics_of_jobs(
    request: Request,
    get: Annotated[str | None, Query(description="names")] = None,
    agg: Annotated[str | None, Query(description="min, max, sum, avg")] = None,
    chosen: Annotated[str | None, Query(alias="jobs", description="ids")] = None,
) -> list[dict[str, Any]]:
    """Metrics of all jobs, or of some, taken together."""
    values: dict[str, list[float]] = {}
    ids = _words(chosen)
    for own in dispatcher_of(request).jobs():
        if ids is None or own["jid"] in ids:
            for name, value in views.job_metrics(own, now_ms()).items():
                values.setdefault(name, []).append(float(value))
    return views.aggregated(values, _words(get), _words(agg))


def _words(text: str | None) -> list[str] | None:
    return None if text is None else text.split(",")


# --- one job -------------------------------------------------------------------------------------


@router.get("/jobs/{jid}")
def job(request: Request, jid: Jid) -> dict[str, Any]:
    """A job with its vertices and plan."""
    return views.job_details(dispatcher_of(request).job(jid), now_ms())


@router.patch("/jobs/{jid}", status_code=_ACCEPTED)
def cancel(
    request: Request, jid: Jid, mode: Annotated[str, Query(description="cancel")] = "cancel"
) -> dict[str, Any]:
    """Cancel a job. Its checkpoints stay, unless it was told otherwise."""
    if mode != "cancel":
        raise HTTPException(
            400, f"mode can be cancel, not '{mode[:100]}'; to stop with a savepoint: POST .../stop"
        )
    dispatcher_of(request).cancel(jid)
    return {}


@router.get("/jobs/{jid}/status")
def status(request: Request, jid: Jid) -> dict[str, Any]:
    return {"status": dispatcher_of(request).job(jid)["state"]}


@router.get("/jobs/{jid}/execution-result")
def execution_result(request: Request, jid: Jid) -> dict[str, Any]:
    """How a job has ended, if it has."""
    return views.execution_result(dispatcher_of(request).job(jid))


@router.get("/jobs/{jid}/plan")
def plan(request: Request, jid: Jid) -> dict[str, Any]:
    return {"plan": views.plan(dispatcher_of(request).job(jid))}


@router.get("/jobs/{jid}/config")
def config(request: Request, jid: Jid) -> dict[str, Any]:
    return views.job_config(dispatcher_of(request).job(jid))


@router.get("/jobs/{jid}/exceptions")
def exceptions(
    request: Request,
    jid: Jid,
    max_exceptions: Annotated[int, Query(alias="maxExceptions", ge=1)] = 20,
) -> dict[str, Any]:
    """What went wrong, the newest first."""
    return views.exceptions(dispatcher_of(request).job(jid), max_exceptions)


@router.get("/jobs/{jid}/accumulators")
def accumulators(request: Request, jid: Jid) -> dict[str, Any]:
    """What functions have counted."""
    metrics = dispatcher_of(request).job(jid)["metrics"]
    return {
        "job-accumulators": [],
        "user-task-accumulators": [
            {"name": name, "type": type(value).__name__, "value": str(value)}
            for name, value in metrics.items()
        ],
        "serialized-user-task-accumulators": {},
    }


@router.get("/jobs/{jid}/metrics")
def job_metrics(
    request: Request, jid: Jid, get: Annotated[str | None, Query(description="names")] = None
) -> list[dict[str, Any]]:
    """Names of metrics, or with `get` their values."""
    values = views.job_metrics(dispatcher_of(request).job(jid), now_ms())
    return views.as_metrics(values, _words(get))


@router.get("/jobs/{jid}/report")
def report(request: Request, jid: Jid) -> dict[str, Any]:
    """Beyond Flink: everything a job says of itself (docs/job-report.md)."""
    return dispatcher_of(request).job(jid)


@router.get("/jobs/{jid}/log", response_class=PlainTextResponse)
def log(
    request: Request, jid: Jid, lines: Annotated[int, Query(alias="tail", ge=1, le=100_000)] = 1000
) -> Response:
    """Beyond Flink: what the job's driver has printed; the last lines, or with a Range header these bytes,
    for who follows it."""
    files = dispatcher_of(request).files(jid)
    if "range" in request.headers and files.log.exists():
        return FileResponse(files.log, media_type="text/plain; charset=utf-8")
    return PlainTextResponse("".join(f"{line}\n" for line in tail(files, lines)))


# --- checkpoints and savepoints ------------------------------------------------------------------


@router.get("/jobs/{jid}/checkpoints")
def checkpoints(request: Request, jid: Jid) -> dict[str, Any]:
    """Every batch is a checkpoint; the newest ones are listed."""
    return checkpoint_views.checkpoints(dispatcher_of(request).job(jid))


@router.get("/jobs/{jid}/checkpoints/config")
def checkpoint_config(request: Request, jid: Jid) -> dict[str, Any]:
    return checkpoint_views.checkpoint_config(dispatcher_of(request).job(jid))


@router.get("/jobs/{jid}/checkpoints/details/{checkpoint_id}")
def checkpoint(request: Request, jid: Jid, checkpoint_id: int) -> dict[str, Any]:
    report = dispatcher_of(request).job(jid)
    for own in report["checkpoints"]["history"]:
        if own["id"] == checkpoint_id:
            return checkpoint_views.checkpoint(own, report)
    raise NoSuchThing(f"There is no checkpoint {checkpoint_id} among the newest of job {jid}.")


@router.post("/jobs/{jid}/savepoints", status_code=_ACCEPTED)
def savepoint(
    request: Request, jid: Jid, asked: Annotated[SavepointRequest | None, Body()] = None
) -> dict[str, Any]:
    """Take a savepoint; ask for it under the request-id."""
    asked = asked or SavepointRequest.model_validate({})
    dispatcher = dispatcher_of(request)
    if asked.cancel_job:
        request_id = dispatcher.stop(jid, asked.target_directory, drain=False)
    else:
        request_id = dispatcher.savepoint(jid, asked.target_directory)
    return {"request-id": request_id}


@router.post("/jobs/{jid}/stop", status_code=_ACCEPTED)
def stop(
    request: Request, jid: Jid, asked: Annotated[StopRequest | None, Body()] = None
) -> dict[str, Any]:
    """Take a savepoint and end the job with it."""
    asked = asked or StopRequest.model_validate({})
    request_id = dispatcher_of(request).stop(jid, asked.target_directory, asked.drain)
    return {"request-id": request_id}


@router.get("/jobs/{jid}/savepoints/{trigger_id}")
def savepoint_status(request: Request, jid: Jid, trigger_id: TriggerId) -> dict[str, Any]:
    return checkpoint_views.trigger(dispatcher_of(request).answer(jid, trigger_id))


# --- vertices ------------------------------------------------------------------------------------


def _vertex(request: Request, jid: str, vid: str) -> tuple[dict[str, Any], dict[str, Any]]:
    report = dispatcher_of(request).job(jid)
    for vertex in report["vertices"]:
        if vertex["id"] == vid:
            return vertex, report
    raise NoSuchThing(f"Job {jid} has no vertex {vid}.")


@router.get("/jobs/{jid}/vertices/{vid}")
def vertex(request: Request, jid: Jid, vid: Vid) -> dict[str, Any]:
    """A vertex, subtask by subtask."""
    return views.vertex_details(*_vertex(request, jid, vid), now_ms())


@router.get("/jobs/{jid}/vertices/{vid}/subtasktimes")
def subtask_times(request: Request, jid: Jid, vid: Vid) -> dict[str, Any]:
    return views.subtask_times(*_vertex(request, jid, vid), now_ms())


@router.get("/jobs/{jid}/vertices/{vid}/backpressure")
def back_pressure(request: Request, jid: Jid, vid: Vid) -> dict[str, Any]:
    return views.back_pressure(_vertex(request, jid, vid)[0], now_ms())


@router.get("/jobs/{jid}/vertices/{vid}/watermarks")
def watermarks(request: Request, jid: Jid, vid: Vid) -> list[dict[str, Any]]:
    return views.watermarks(_vertex(request, jid, vid)[0])


@router.get("/jobs/{jid}/vertices/{vid}/metrics")
def vertex_metrics(
    request: Request, jid: Jid, vid: Vid, get: Annotated[str | None, Query()] = None
) -> list[dict[str, Any]]:
    values = views.vertex_metrics(_vertex(request, jid, vid)[0])
    return views.as_metrics(values, _words(get))


@router.get("/jobs/{jid}/vertices/{vid}/subtasks/metrics")
def metrics_of_subtasks(
    request: Request,
    jid: Jid,
    vid: Vid,
    get: Annotated[str | None, Query(description="names")] = None,
    agg: Annotated[str | None, Query(description="min, max, sum, avg")] = None,
    subtasks: Annotated[str | None, Query(pattern="^[0-9]{1,5}([,-][0-9]{1,5})*$")] = None,
) -> list[dict[str, Any]]:
    """Metrics of a vertex's subtasks, or of some (0,2-4), taken together."""
    values = views.subtask_metrics(_vertex(request, jid, vid)[0], _numbers(subtasks))
    return views.aggregated(values, _words(get), _words(agg))


def _numbers(text: str | None) -> set[int] | None:
    """Of 0,2-4."""
    if text is None:
        return None
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int((last or first).rpartition("-")[2]) + 1))
    return found


# --- queryable state -----------------------------------------------------------------------------


@router.get("/jobs/{jid}/state")
def states(request: Request, jid: Jid) -> dict[str, Any]:
    """Beyond Flink: states that can be looked into."""
    queryable = dispatcher_of(request).job(jid)["queryable"]
    return {"states": [{"name": name, **own} for name, own in queryable.items()]}


def _job_folder(request: Request, jid: str) -> FilePath:
    report = dispatcher_of(request).job(jid)
    if report["state"] in views.ENDED:
        raise NoSuchThing(f"Job {jid} is {report['state']}; state is looked up while a job runs.")
    if report["state"] != "RUNNING" or report["folder"] is None:
        raise RetryLaterError(f"Job {jid} is {report['state']}. Ask again when it is RUNNING.")
    return FilePath(report["folder"])


@router.get("/jobs/{jid}/state/{name}/location")
def state_location(
    request: Request,
    jid: Jid,
    name: str,
    lost: Annotated[str, Query(pattern="^([0-9]{1,5}(,[0-9]{1,5})*)?$", max_length=100_000)] = "",
) -> dict[str, Any]:
    """Where a state is: for clients that ask the slots themselves. `lost`: partitions they cannot reach."""
    return describe(_job_folder(request, jid), name, [int(own) for own in lost.split(",") if own])


@router.get("/jobs/{jid}/state/{name}/{key}")
async def state(
    request: Request, jid: Jid, name: str, key: str, entry: Annotated[str | None, Query()] = None
) -> dict[str, Any]:
    """The value of a key, as of the newest checkpoint."""
    folder = await run_in_threadpool(_job_folder, request, jid)
    result: dict[str, Any] = await request.app.state.proxy.get(folder, name, key, entry)
    return result
