"""/jobs: routes about jobs that run or have run, and what clients can ask of them."""

from __future__ import annotations

import time
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Body, HTTPException, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field

from millpond.common.job import JobStatus
from millpond.dispatcher.messages import Json, Report
from millpond.dispatcher.rest import checkpoint_views, views
from millpond.dispatcher.service import Dispatcher, NoSuchThing
from millpond.dispatcher.supervisor import tail
from millpond.errors import RetryLaterError
from millpond.queryable.locations import describe

router = APIRouter(tags=["jobs"])
Jid = Annotated[
    str, Path(description="id of a job, 32 hexadecimal digits", pattern="^[0-9a-f]{32}$")
]
Vid = Annotated[str, Path(description="id of a vertex", pattern="^[0-9a-f]{32}$")]
TriggerId = Annotated[
    str, Path(description="request-id of the operation", pattern="^[0-9a-f]{32}$")
]
_ACCEPTED = 202
_NAMES = "names of metrics, separated by commas"
_AGGREGATES = "min, max, sum, avg: one or more of these, separated by commas; all if not given"


class SavepointRequest(BaseModel):
    """A savepoint to take, with Flink's field names. All fields are optional."""

    model_config = ConfigDict(populate_by_name=True)
    target_directory: str | None = Field(None, alias="target-directory", max_length=4096)
    cancel_job: bool = Field(False, alias="cancel-job")


class StopRequest(BaseModel):
    """How to stop a job, with Flink's field names. All fields are optional."""

    model_config = ConfigDict(populate_by_name=True)
    target_directory: str | None = Field(None, alias="targetDirectory", max_length=4096)
    drain: bool = False


def dispatcher_of(request: Request) -> Dispatcher:
    """Return the dispatcher that a request is for."""
    return request.app.state.dispatcher  # type: ignore[no-any-return]


def now_ms() -> int:
    """Return the time now, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


# --- all jobs ------------------------------------------------------------------------------------


@router.get("/jobs")
def jobs(request: Request) -> Json:
    """List the ids and states of all jobs."""
    reports = dispatcher_of(request).jobs()
    return {"jobs": [{"id": report["jid"], "status": report["state"]} for report in reports]}


@router.get("/jobs/overview")
def jobs_overview(request: Request) -> Json:
    """List all jobs with their times and numbers of tasks."""
    now = now_ms()
    return {"jobs": [views.job_overview(report, now) for report in dispatcher_of(request).jobs()]}


@router.get("/jobs/metrics")
def metrics_of_jobs(
    request: Request,
    get: Annotated[str | None, Query(description=_NAMES)] = None,
    agg: Annotated[str | None, Query(description=_AGGREGATES)] = None,
    chosen: Annotated[
        str | None, Query(alias="jobs", description="ids of jobs, separated by commas")
    ] = None,
) -> list[Json]:
    """Aggregate the metrics of all jobs or of those chosen; without `get`, list the names of metrics."""
    values: dict[str, list[float]] = {}
    ids = _words(chosen)
    for report in dispatcher_of(request).jobs():
        if ids is None or report["jid"] in ids:
            for name, value in views.job_metrics(report, now_ms()).items():
                values.setdefault(name, []).append(float(value))
    return views.aggregated(values, _words(get), _words(agg))


def _words(text: str | None) -> list[str] | None:
    return None if text is None else text.split(",")


# --- one job -------------------------------------------------------------------------------------


@router.get("/jobs/{jid}")
def job(request: Request, jid: Jid) -> Json:
    """Describe a job with its vertices and plan."""
    return views.job_details(dispatcher_of(request).job(jid), now_ms())


@router.patch("/jobs/{jid}", status_code=_ACCEPTED)
def cancel(
    request: Request, jid: Jid, mode: Annotated[str, Query(description="cancel")] = "cancel"
) -> Json:
    """Cancel a job. Its checkpoints stay unless its settings say otherwise."""
    if mode != "cancel":
        raise HTTPException(
            400,
            f"mode can only be cancel, not '{mode[:100]}'; to stop with a savepoint, POST to .../stop",
        )
    dispatcher_of(request).cancel(jid)
    return {}


@router.get("/jobs/{jid}/status")
def status(request: Request, jid: Jid) -> Json:
    """Return the state of a job."""
    return {"status": dispatcher_of(request).job(jid)["state"]}


@router.get("/jobs/{jid}/execution-result")
def execution_result(request: Request, jid: Jid) -> Json:
    """Say how a job has ended, if it has."""
    return views.execution_result(dispatcher_of(request).job(jid))


@router.get("/jobs/{jid}/plan")
def plan(request: Request, jid: Jid) -> Json:
    """Return the plan of a job: its vertices and how records travel between them."""
    return {"plan": views.plan(dispatcher_of(request).job(jid))}


@router.get("/jobs/{jid}/config")
def config(request: Request, jid: Jid) -> Json:
    """Return the settings of a job."""
    return views.job_config(dispatcher_of(request).job(jid))


@router.get("/jobs/{jid}/exceptions")
def exceptions(
    request: Request,
    jid: Jid,
    max_exceptions: Annotated[int, Query(alias="maxExceptions", ge=1)] = 20,
) -> Json:
    """List the exceptions of a job, newest first."""
    return views.exceptions(dispatcher_of(request).job(jid), max_exceptions)


@router.get("/jobs/{jid}/accumulators")
def accumulators(request: Request, jid: Jid) -> Json:
    """Return the job's metrics as Flink's accumulators, including those that its functions keep."""
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
    request: Request, jid: Jid, get: Annotated[str | None, Query(description=_NAMES)] = None
) -> list[Json]:
    """List the names of a job's metrics, or with `get` the values of those named."""
    values = views.job_metrics(dispatcher_of(request).job(jid), now_ms())
    return views.as_metrics(values, _words(get))


@router.get("/jobs/{jid}/report")
def report(request: Request, jid: Jid) -> Json:
    """Beyond Flink: return the job report, with everything about a job (docs/job-report.md)."""
    return dispatcher_of(request).job(jid)


@router.get("/jobs/{jid}/log", response_class=PlainTextResponse)
def log(
    request: Request, jid: Jid, lines: Annotated[int, Query(alias="tail", ge=1, le=100_000)] = 1000
) -> Response:
    """Beyond Flink: return the last lines that the job's driver has printed. With a Range header, return
    those bytes of its log, for clients that follow it."""
    files = dispatcher_of(request).files(jid)
    if "range" in request.headers and files.log.exists():
        return FileResponse(files.log, media_type="text/plain; charset=utf-8")
    return PlainTextResponse("".join(f"{line}\n" for line in tail(files, lines)))


# --- checkpoints and savepoints ------------------------------------------------------------------


@router.get("/jobs/{jid}/checkpoints")
def checkpoints(request: Request, jid: Jid) -> Json:
    """List the newest checkpoints of a job, with statistics; every batch is a checkpoint."""
    return checkpoint_views.checkpoints(dispatcher_of(request).job(jid))


@router.get("/jobs/{jid}/checkpoints/config")
def checkpoint_config(request: Request, jid: Jid) -> Json:
    """Return the checkpoint settings of a job."""
    return checkpoint_views.checkpoint_config(dispatcher_of(request).job(jid))


@router.get("/jobs/{jid}/checkpoints/details/{checkpoint_id}")
def checkpoint(request: Request, jid: Jid, checkpoint_id: int) -> Json:
    """Describe one of the newest checkpoints of a job."""
    report = dispatcher_of(request).job(jid)
    for record in report["checkpoints"]["history"]:
        if record["id"] == checkpoint_id:
            return checkpoint_views.checkpoint(record, report)
    raise NoSuchThing(f"Checkpoint {checkpoint_id} is not among the newest of job {jid}.")


@router.post("/jobs/{jid}/savepoints", status_code=_ACCEPTED)
def savepoint(
    request: Request, jid: Jid, asked: Annotated[SavepointRequest | None, Body()] = None
) -> Json:
    """Take a savepoint in the background; the request-id is for asking whether it is complete."""
    asked = asked or SavepointRequest.model_validate({})
    dispatcher = dispatcher_of(request)
    if asked.cancel_job:
        request_id = dispatcher.stop(jid, asked.target_directory, drain=False)
    else:
        request_id = dispatcher.savepoint(jid, asked.target_directory)
    return {"request-id": request_id}


@router.post("/jobs/{jid}/stop", status_code=_ACCEPTED)
def stop(request: Request, jid: Jid, asked: Annotated[StopRequest | None, Body()] = None) -> Json:
    """Take a savepoint and end the job with it, in the background; the request-id is as for savepoints."""
    asked = asked or StopRequest.model_validate({})
    request_id = dispatcher_of(request).stop(jid, asked.target_directory, asked.drain)
    return {"request-id": request_id}


@router.get("/jobs/{jid}/savepoints/{trigger_id}")
def savepoint_status(request: Request, jid: Jid, trigger_id: TriggerId) -> Json:
    """Say whether a savepoint is complete, and where it is or why it failed."""
    return checkpoint_views.trigger(dispatcher_of(request).answer(jid, trigger_id))


# --- vertices ------------------------------------------------------------------------------------


def _vertex(request: Request, jid: str, vid: str) -> tuple[Json, Report]:
    report = dispatcher_of(request).job(jid)
    for vertex in report["vertices"]:
        if vertex["id"] == vid:
            return vertex, report
    raise NoSuchThing(f"Job {jid} has no vertex {vid}.")


@router.get("/jobs/{jid}/vertices/{vid}")
def vertex(request: Request, jid: Jid, vid: Vid) -> Json:
    """Describe a vertex, subtask by subtask."""
    return views.vertex_details(*_vertex(request, jid, vid), now_ms())


@router.get("/jobs/{jid}/vertices/{vid}/subtasktimes")
def subtask_times(request: Request, jid: Jid, vid: Vid) -> Json:
    """Return the times of a vertex's subtasks."""
    return views.subtask_times(*_vertex(request, jid, vid), now_ms())


@router.get("/jobs/{jid}/vertices/{vid}/backpressure")
def back_pressure(request: Request, jid: Jid, vid: Vid) -> Json:
    """Return how busy, idle and back-pressured a vertex's subtasks are."""
    return views.back_pressure(_vertex(request, jid, vid)[0], now_ms())


@router.get("/jobs/{jid}/vertices/{vid}/watermarks")
def watermarks(request: Request, jid: Jid, vid: Vid) -> list[Json]:
    """Return the watermarks of a vertex's subtasks; none if it has no watermark yet."""
    return views.watermarks(_vertex(request, jid, vid)[0])


@router.get("/jobs/{jid}/vertices/{vid}/metrics")
def vertex_metrics(
    request: Request,
    jid: Jid,
    vid: Vid,
    get: Annotated[str | None, Query(description=_NAMES)] = None,
) -> list[Json]:
    """List the names of a vertex's metrics, or with `get` the values of those named."""
    values = views.vertex_metrics(_vertex(request, jid, vid)[0])
    return views.as_metrics(values, _words(get))


@router.get("/jobs/{jid}/vertices/{vid}/subtasks/metrics")
def metrics_of_subtasks(
    request: Request,
    jid: Jid,
    vid: Vid,
    get: Annotated[str | None, Query(description=_NAMES)] = None,
    agg: Annotated[str | None, Query(description=_AGGREGATES)] = None,
    subtasks: Annotated[str | None, Query(pattern="^[0-9]{1,5}([,-][0-9]{1,5})*$")] = None,
) -> list[Json]:
    """Aggregate the metrics of a vertex's subtasks, or of some of them (0,2-4); without `get`, list the names
    of metrics."""
    values = views.subtask_metrics(_vertex(request, jid, vid)[0], _numbers(subtasks))
    return views.aggregated(values, _words(get), _words(agg))


def _numbers(text: str | None) -> set[int] | None:
    """Return the numbers in a text such as 0,2-4."""
    if text is None:
        return None
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int((last or first).rpartition("-")[2]) + 1))
    return found


# --- queryable state -----------------------------------------------------------------------------


@router.get("/jobs/{jid}/state")
def states(request: Request, jid: Jid) -> Json:
    """Beyond Flink: list the queryable states of a job."""
    queryable = dispatcher_of(request).job(jid)["queryable"]
    return {"states": [{"name": name, **state} for name, state in queryable.items()]}


def _job_folder(request: Request, jid: str) -> FilePath:
    report = dispatcher_of(request).job(jid)
    status = JobStatus.of(report)
    if status.is_globally_terminal_state():
        raise NoSuchThing(
            f"Job {jid} is {status.name}; state can be looked up only while a job runs."
        )
    if status is not JobStatus.RUNNING or report["folder"] is None:
        raise RetryLaterError(
            f"Job {jid} is {status.name}. Try again when it is {JobStatus.RUNNING.name}."
        )
    return FilePath(report["folder"])


@router.get("/jobs/{jid}/state/{name}/location")
def state_location(
    request: Request,
    jid: Jid,
    name: str,
    lost: Annotated[str, Query(pattern="^([0-9]{1,5}(,[0-9]{1,5})*)?$", max_length=100_000)] = "",
) -> Json:
    """Say where a queryable state is, for clients that ask the slots themselves. `lost` names the partitions
    that the client cannot reach."""
    return describe(
        _job_folder(request, jid), name, [int(number) for number in lost.split(",") if number]
    )


@router.get("/jobs/{jid}/state/{name}/{key}")
async def state(
    request: Request, jid: Jid, name: str, key: str, entry: Annotated[str | None, Query()] = None
) -> Json:
    """Look up the value of a key in a queryable state, as of the newest checkpoint."""
    folder = await run_in_threadpool(_job_folder, request, jid)
    result: Json = await request.app.state.proxy.get(folder, name, key, entry)
    return result
