"""Assembles the REST service: routes with and without /v1, errors in Flink's form, the dashboard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.responses import Response

from millpond import __version__
from millpond.dashboard import CONTENT_SECURITY_POLICY, static_folder
from millpond.dispatcher.messages import Json
from millpond.dispatcher.resources import Resources
from millpond.dispatcher.rest import applications, cluster, jobs
from millpond.dispatcher.rest.security import Security, SecurityLayer
from millpond.dispatcher.service import Dispatcher, NoSuchThing, Refused
from millpond.errors import LeadershipLost, MillpondError, QueryableStateError
from millpond.queryable.proxy import StateProxy, status_of

_ERRORS: dict[int | str, Json] = {
    status: {"description": text, "content": {"application/json": {"example": {"errors": ["..."]}}}}
    for status, text in (
        (400, "the request is not valid"),
        (404, "there is no such thing"),
        (409, "not possible in the present state of the job"),
        (503, "no dispatcher leads, or the job is starting; try again"),
    )
}


def make_app(
    dispatcher: Dispatcher,
    security: Security,
    resources: Resources,
    shut_down: Callable[[], None],
) -> FastAPI:
    """Return the REST service of a dispatcher, dashboard included. `shut_down` is called when a client asks
    to end the dispatcher."""
    app = FastAPI(
        title="Millpond",
        version=__version__,
        description="Jobs, checkpoints, savepoints: the paths and names of Flink's REST API.",
        docs_url=None,
        redoc_url=None,
    )
    app.state.dispatcher = dispatcher
    app.state.security = security
    app.state.resources = resources
    app.state.shut_down = shut_down
    app.state.proxy = StateProxy()
    routes = APIRouter(responses=_ERRORS)
    for part in (cluster.router, jobs.router, applications.router):
        routes.include_router(part)
    app.include_router(routes)
    app.include_router(routes, prefix="/v1", include_in_schema=False)
    _add_pages(app)
    _add_errors(app, dispatcher)
    app.add_middleware(SecurityLayer, security=security)
    return app


def _add_pages(app: FastAPI) -> None:
    app.mount("/static", StaticFiles(directory=static_folder()), name="static")

    @app.get("/", include_in_schema=False)
    def dashboard() -> FileResponse:
        return FileResponse(
            static_folder() / "index.html",
            headers={
                "Content-Security-Policy": CONTENT_SECURITY_POLICY,
                "Cache-Control": "no-cache",
            },
        )

    @app.get("/docs", include_in_schema=False)
    def documentation() -> RedirectResponse:
        # The dashboard shows the description, without loading anything from other sites.
        return RedirectResponse("/#/api")

    @app.middleware("http")
    async def no_guessing(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        response = await call_next(request)
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response


def _add_errors(app: FastAPI, dispatcher: Dispatcher) -> None:
    @app.exception_handler(StarletteHTTPException)
    async def http_error(_: Request, problem: StarletteHTTPException) -> JSONResponse:
        return _error(problem.status_code, str(problem.detail))

    @app.exception_handler(HTTPException)
    async def own_http_error(_: Request, problem: HTTPException) -> JSONResponse:
        return _error(problem.status_code, str(problem.detail))

    @app.exception_handler(RequestValidationError)
    async def bad_request(_: Request, problem: RequestValidationError) -> JSONResponse:
        texts = [
            f"{'.'.join(str(part) for part in error['loc'])}: {error['msg']}"
            for error in problem.errors()
        ]
        return JSONResponse({"errors": texts}, status_code=400)

    @app.exception_handler(LeadershipLost)
    async def not_the_leader(request: Request, problem: LeadershipLost) -> Response:
        """Redirect clients of a standby to the leader."""
        leader = dispatcher.leadership.leader_address()
        if leader is None or leader.rstrip("/") == str(request.base_url).rstrip("/"):
            return _error(
                503, "No dispatcher leads at the moment. Try again later.", {"Retry-After": "1"}
            )
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"{leader.rstrip('/')}{request.url.path}{query}", status_code=307)

    @app.exception_handler(MillpondError)
    async def refused(_: Request, problem: MillpondError) -> JSONResponse:
        if isinstance(problem, QueryableStateError):
            return _error(status_of(problem), str(problem))
        if isinstance(problem, NoSuchThing):
            return _error(404, str(problem))
        return _error(409 if isinstance(problem, Refused) else 400, str(problem))


def _error(status: int, text: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"errors": [text]}, status_code=status, headers=headers)
