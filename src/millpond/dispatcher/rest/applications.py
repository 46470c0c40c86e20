"""/jars: uploaded programs, which can be run. The name is Flink's; here they are .py, .zip or .whl files."""

from __future__ import annotations

import os
import shlex
from typing import Annotated

from fastapi import APIRouter, Body, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import UploadFile
from starlette.requests import ClientDisconnect

from millpond.common import options
from millpond.dispatcher.messages import Json
from millpond.dispatcher.rest.jobs import dispatcher_of
from millpond.dispatcher.service import checked_name
from millpond.errors import DispatcherError

router = APIRouter(tags=["applications"])
ApplicationId = Annotated[str, Path(description="id of an uploaded program", max_length=200)]
_PIECE = 1 << 20
_UPLOAD = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "properties": {"jarfile": {"type": "string", "format": "binary"}},
                "required": ["jarfile"],
            }
        }
    },
}


class RunRequest(BaseModel):
    """How to run a program, with Flink's field names. All fields are optional."""

    model_config = ConfigDict(populate_by_name=True)
    entry: str | None = Field(
        None, alias="entryClass", max_length=500, description="module of a .zip or .whl to run"
    )
    program_args: str | None = Field(None, alias="programArgs", max_length=100_000)
    program_args_list: list[str] | None = Field(None, alias="programArgsList", max_length=10_000)
    parallelism: int | None = Field(None, ge=1, le=32768)
    savepoint_path: str | None = Field(None, alias="savepointPath", max_length=4096)
    allow_non_restored: bool = Field(False, alias="allowNonRestoredState")
    configuration: dict[str, str] = Field(default_factory=dict, alias="flinkConfiguration")

    def arguments(self) -> list[str]:
        """Return the program's arguments. Raise DispatcherError if they are one text that a shell could not
        split."""
        if self.program_args_list is not None:
            return self.program_args_list
        try:
            return shlex.split(self.program_args or "")
        except ValueError as problem:
            raise DispatcherError(f"Cannot split programArgs: {problem}.") from None

    def settings(self) -> dict[str, str]:
        """Return the configuration with the settings that have fields of their own."""
        settings = dict(self.configuration)
        if self.parallelism is not None:
            settings[options.PARALLELISM.key] = str(self.parallelism)
        if self.savepoint_path is not None:
            settings[options.SAVEPOINT_PATH.key] = self.savepoint_path
        if self.allow_non_restored:
            settings[options.ALLOW_NON_RESTORED.key] = "true"
        return settings


@router.post("/jars/upload", openapi_extra={"requestBody": _UPLOAD})
async def upload(request: Request) -> Json:
    """Upload a program (.py, .zip or .whl) as a file in a form. The name of the form's field does not
    matter."""
    try:
        async with request.form(max_files=1, max_fields=10) as form:
            files = [part for part in form.values() if isinstance(part, UploadFile)]
            if not files:
                raise DispatcherError("The form contains no file.")
            return await run_in_threadpool(_keep, request, files[0])
    except ClientDisconnect:
        raise DispatcherError("The upload was interrupted or is too large.") from None


def _keep(request: Request, jarfile: UploadFile) -> Json:
    dispatcher = dispatcher_of(request)
    name = checked_name(jarfile.filename or "")
    aside = dispatcher.storage.upload_path()
    try:
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            while piece := jarfile.file.read(_PIECE):
                file.write(piece)
        meta = dispatcher.add_application(name, aside)
    finally:
        aside.unlink(missing_ok=True)
    return {"filename": f"/applications/{meta['id']}", "status": "success"}


@router.get("/jars")
def applications(request: Request) -> Json:
    """List the uploaded programs."""
    files = [
        {
            "id": stored["id"],
            "name": stored["name"],
            "uploaded": stored["uploaded"],
            "entry": [{"name": stored["name"], "description": None}],
        }
        for stored in dispatcher_of(request).storage.applications()
    ]
    return {"address": str(request.base_url).rstrip("/"), "files": files}


@router.delete("/jars/{application_id}")
def remove(request: Request, application_id: ApplicationId) -> Json:
    """Delete an uploaded program. Jobs that run it keep their copy."""
    dispatcher_of(request).remove_application(application_id)
    return {}


@router.post("/jars/{application_id}/run")
def run(
    request: Request,
    application_id: ApplicationId,
    asked: Annotated[RunRequest | None, Body()] = None,
    entry: Annotated[str | None, Query(alias="entry-class", max_length=500)] = None,
    parallelism: Annotated[int | None, Query(ge=1, le=32768)] = None,
) -> Json:
    """Run an uploaded program as a job, and return the job's id."""
    asked = asked or RunRequest.model_validate({})
    settings = asked.settings()
    if parallelism is not None:
        settings[options.PARALLELISM.key] = str(parallelism)
    jid = dispatcher_of(request).run_application(
        application_id, asked.arguments(), settings, asked.entry or entry
    )
    return {"jobid": jid}
