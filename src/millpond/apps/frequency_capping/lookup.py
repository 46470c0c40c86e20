"""The look-up service: answers "may this user see these ads?" from Redis. It keeps nothing itself."""

from __future__ import annotations

import contextlib
import gc
import html
import importlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Protocol
from urllib.parse import parse_qsl

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import ASGIApp, Receive, Scope, Send

from millpond import __version__
from millpond.apps.frequency_capping.pipeline import redis_key
from millpond.apps.frequency_capping.rules import text_of
from millpond.datastream.connectors.redis.connection import hidden, is_cluster

_MOST_ADS = 1000
_MOST_REQUESTS = 1000
# From a user and ads to the response.
AnswerAds = Callable[[str, list[str]], Awaitable[Response]]


class RedisPipeline(Protocol):
    """Commands that are sent to Redis together."""

    def smismember(self, name: str, values: list[str]) -> object:
        """Add the question which of the values are members of a set."""

    def execute(self) -> Awaitable[list[Sequence[int]]]:
        """Send the commands and return their answers."""


class RedisClient(Protocol):
    """The part of an asynchronous Redis client that the service uses."""

    def smismember(self, name: str, values: list[str]) -> Awaitable[Sequence[int]]:
        """Return 1 for each of the values that is a member of a set, and 0 for the others."""

    def pipeline(self, transaction: bool = ...) -> RedisPipeline:
        """Return a new pipeline."""

    def ping(self) -> Awaitable[object]:
        """Raise RedisError if Redis does not answer."""


class Candidate(BaseModel):
    """An ad that could be shown, and what it belongs to; fields may have the names of any levels of rules."""

    model_config = ConfigDict(extra="allow")
    ad: str = Field(min_length=1, examples=["ad-17"])

    def members(self) -> list[str]:
        """Return the members whose caps forbid the ad, as in Redis: LEVEL:ID."""
        given = self.model_dump().items()
        return [f"{level}:{text_of(member)}" for level, member in given if member is not None]


class Asked(BaseModel):
    """A user, and the ads that could be shown to them."""

    user: str | int = Field(examples=[42])
    candidates: list[Candidate] = Field(min_length=1, max_length=_MOST_ADS)


class AskedMany(BaseModel):
    """Questions for several users."""

    requests: list[Asked] = Field(min_length=1, max_length=_MOST_REQUESTS)


class Answer(BaseModel):
    """Which of the ads a user may see."""

    user: str
    allowed: list[str] = Field(description="ads that may be shown")
    capped: dict[str, list[str]] = Field(description="ad -> why it must not be shown: LEVEL:ID")


class AnswerMany(BaseModel):
    """The answers, in the order of the requests."""

    answers: list[Answer]


def make_app(redis_url: str) -> FastAPI:
    """Return the service for a Redis. Whether Redis answers shows only when something is asked."""
    redis = importlib.import_module("redis.asyncio")
    gc.collect()
    gc.freeze()  # modules stay forever, so the collector need not visit them while somebody waits
    factory = redis.cluster.RedisCluster if is_cluster(redis_url) else redis.Redis
    own_url = redis_url.replace("+cluster", "", 1)
    client: RedisClient = factory.from_url(own_url, decode_responses=True, socket_timeout=2)
    app = FastAPI(
        title="Frequency capping",
        version=__version__,
        description="May this user see these ads?",
        docs_url=None,
        redoc_url=None,
    )

    async def answer(user: str, ads: list[str]) -> JSONResponse:
        members = [f"ad:{ad}" for ad in ads]
        found = await client.smismember(redis_key(user), members)
        capped = {ad: [m] for ad, m, is_in in zip(ads, members, found, strict=True) if is_in}
        allowed = [ad for ad in ads if ad not in capped]
        return JSONResponse({"user": user, "allowed": allowed, "capped": capped})

    app.add_middleware(_Shortcut, answer=answer, failure=redis.RedisError)

    @app.exception_handler(redis.RedisError)
    async def redis_is_away(_: Request, problem: Exception) -> JSONResponse:
        text = f"Redis at {hidden(redis_url)} does not answer: {problem}"
        return JSONResponse({"detail": text}, status_code=503)

    _add_routes(app, client, answer, is_cluster(redis_url))
    return app


def _add_routes(app: FastAPI, client: RedisClient, answer: AnswerAds, on_cluster: bool) -> None:
    @app.get("/v1/allowed", response_model=Answer)
    async def allowed(
        user: str = Query(min_length=1, examples=["42"]),
        ads: str = Query(
            min_length=1, description="ids of ads, separated by commas", examples=["a,b"]
        ),
    ) -> Response:
        """Ask about ads for one user, by the ids of the ads alone."""
        candidates = _listed(ads)
        if candidates is None:
            raise HTTPException(422, f"ads must name 1 to {_MOST_ADS} ads")
        return await answer(user, candidates)

    @app.post("/v1/allowed")
    async def allowed_many(asked: AskedMany) -> AnswerMany:
        """Ask about several users at once, and about everything that an ad belongs to."""
        pipeline = client.pipeline() if on_cluster else client.pipeline(transaction=False)
        for request in asked.requests:
            members = [member for candidate in request.candidates for member in candidate.members()]
            pipeline.smismember(redis_key(str(request.user)), members)
        found = await pipeline.execute()
        pairs = zip(asked.requests, found, strict=True)
        return AnswerMany(answers=[_answer(request, iter(is_in)) for request, is_in in pairs])

    @app.get("/v1/health")
    async def health() -> dict[str, str]:
        """Find out whether Redis answers; the status is 503 if it does not."""
        await client.ping()
        return {"status": "ok"}

    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(_page(app.openapi()))


class _Shortcut:
    """Middleware that answers the usual question itself, because FastAPI would take longer for it than all
    the rest. FastAPI gets all other requests, and those for which Redis fails."""

    def __init__(
        self,
        app: ASGIApp,
        answer: AnswerAds,
        failure: type[Exception],
    ) -> None:
        self._app = app
        self._answer = answer
        self._failure = failure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_usual = scope["type"] == "http" and scope["path"] == "/v1/allowed"
        question = (
            _question(scope["query_string"]) if is_usual and scope["method"] == "GET" else None
        )
        if question is not None:
            with contextlib.suppress(self._failure):
                response = await self._answer(*question)
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _question(query: bytes) -> tuple[str, list[str]] | None:
    """Return user and ads; None if this is not the usual question."""
    fields = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    given = dict(fields)
    ads = _listed(given.get("ads", ""))
    if len(fields) != 2 or len(given) != 2 or not given.get("user") or ads is None:
        return None
    return given["user"], ads


def _listed(ads: str) -> list[str] | None:
    """Return the ads in a list with commas; None if there are too few or too many."""
    found = [ad for ad in ads.split(",") if ad]
    return found if 0 < len(found) <= _MOST_ADS else None


def _answer(asked: Asked, is_in: Iterator[int]) -> Answer:
    capped: dict[str, list[str]] = {}
    for candidate in asked.candidates:
        reasons = [member for member in candidate.members() if next(is_in)]
        if reasons:
            capped[candidate.ad] = reasons
    allowed = [candidate.ad for candidate in asked.candidates if candidate.ad not in capped]
    return Answer(user=str(asked.user), allowed=allowed, capped=capped)


def _page(description: dict[str, Any]) -> str:
    """Return the OpenAPI description as a page for people, which loads nothing from other sites."""
    rows = []
    for path, methods in description["paths"].items():
        for method, endpoint in methods.items():
            parameters = ", ".join(
                f"{p['name']}: {p.get('description') or p['schema'].get('type', '')}"
                for p in endpoint.get("parameters", ())
            )
            body = "a JSON body" if "requestBody" in endpoint else ""
            text = endpoint.get("description") or endpoint.get("summary", "")
            cells = (method.upper(), path, text, parameters or body)
            rows.append("".join(f"<td>{html.escape(cell)}</td>" for cell in cells))
    title = html.escape(description["info"]["title"])
    style = (
        "body{font:16px system-ui;margin:3em auto;max-width:60em;padding:0 1em;color-scheme:light dark}"
        "td{padding:.5em 1em .5em 0;vertical-align:top}td:nth-child(2){font-family:monospace}"
    )
    table = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{style}</style>"
        f"<h1>{title}</h1><p>May this user see these ads?</p><table>{table}</table>"
        "<p><a href=/openapi.json>openapi.json</a></p></html>"
    )
