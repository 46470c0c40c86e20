"""The look-up service: "may this user see these ads?", over Redis. It keeps nothing itself."""

from __future__ import annotations

import contextlib
import gc
import html
import importlib
from collections.abc import Awaitable, Callable
from typing import Any
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


class Candidate(BaseModel):
    """What could be shown: an ad, and what it belongs to. Any level of a rule may be named."""

    model_config = ConfigDict(extra="allow")
    ad: str = Field(min_length=1, examples=["ad-17"])

    def members(self) -> list[str]:
        given = self.model_dump().items()
        return [f"{level}:{text_of(own)}" for level, own in given if own is not None]


class Asked(BaseModel):
    user: str | int = Field(examples=[42])
    candidates: list[Candidate] = Field(min_length=1, max_length=_MOST_ADS)


class AskedMany(BaseModel):
    requests: list[Asked] = Field(min_length=1, max_length=_MOST_REQUESTS)


class Answer(BaseModel):
    user: str
    allowed: list[str] = Field(description="ads that may be shown")
    capped: dict[str, list[str]] = Field(description="ad -> why it must not be shown: LEVEL:ID")


class AnswerMany(BaseModel):
    answers: list[Answer]


def make_app(redis_url: str) -> FastAPI:
    redis = importlib.import_module("redis.asyncio")
    gc.collect()
    gc.freeze()  # modules stay for ever: the collector need not walk through them while somebody waits
    factory = redis.cluster.RedisCluster if is_cluster(redis_url) else redis.Redis
    own_url = redis_url.replace("+cluster", "", 1)
    client = factory.from_url(own_url, decode_responses=True, socket_timeout=2)
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

    @app.get("/v1/allowed", response_model=Answer)
    async def allowed(
        user: str = Query(min_length=1, examples=["42"]),
        ads: str = Query(min_length=1, description="ids of ads, with commas", examples=["a,b"]),
    ) -> Response:
        """Ask for some ads of one user, by their ids alone."""
        candidates = _listed(ads)
        if candidates is None:
            raise HTTPException(422, f"ads must name 1 to {_MOST_ADS} ads")
        return await answer(user, candidates)

    @app.post("/v1/allowed")
    async def allowed_many(asked: AskedMany) -> AnswerMany:
        """Ask for many users at once, with all that an ad belongs to."""
        pipeline = (
            client.pipeline() if is_cluster(redis_url) else client.pipeline(transaction=False)
        )
        for own in asked.requests:
            members = [member for candidate in own.candidates for member in candidate.members()]
            pipeline.smismember(redis_key(str(own.user)), members)
        found = await pipeline.execute()
        pairs = zip(asked.requests, found, strict=True)
        return AnswerMany(answers=[_answer(own, iter(is_in)) for own, is_in in pairs])

    @app.get("/v1/health")
    async def health() -> dict[str, str]:
        await client.ping()
        return {"status": "ok"}

    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(_page(app.openapi()))

    return app


class _Shortcut:
    """Answers the usual question itself: what FastAPI does for it takes longer than all the rest. Whatever
    else is asked, or goes wrong, goes on to FastAPI."""

    def __init__(
        self,
        app: ASGIApp,
        answer: Callable[[str, list[str]], Awaitable[Response]],
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
    """User and ads; None if it is not as usual."""
    fields = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    given = dict(fields)
    ads = _listed(given.get("ads", ""))
    if len(fields) != 2 or len(given) != 2 or not given.get("user") or ads is None:
        return None
    return given["user"], ads


def _listed(ads: str) -> list[str] | None:
    """None if they are too few or too many."""
    found = [ad for ad in ads.split(",") if ad]
    return found if 0 < len(found) <= _MOST_ADS else None


def _answer(asked: Asked, is_in: Any) -> Answer:
    capped: dict[str, list[str]] = {}
    for candidate in asked.candidates:
        reasons = [member for member in candidate.members() if next(is_in)]
        if reasons:
            capped[candidate.ad] = reasons
    allowed = [own.ad for own in asked.candidates if own.ad not in capped]
    return Answer(user=str(asked.user), allowed=allowed, capped=capped)


def _page(description: dict[str, Any]) -> str:
    """The OpenAPI description for people, without anything from elsewhere."""
    rows = []
    for path, methods in description["paths"].items():
        for method, own in methods.items():
            parameters = ", ".join(
                f"{p['name']}: {p.get('description') or p['schema'].get('type', '')}"
                for p in own.get("parameters", ())
            )
            body = "a JSON body" if "requestBody" in own else ""
            text = own.get("description") or own.get("summary", "")
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
