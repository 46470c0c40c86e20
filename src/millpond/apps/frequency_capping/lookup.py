"""The look-up service: "may this user see these ads?", over Redis. It keeps nothing itself."""

from __future__ import annotations

import html
import importlib
from typing import Any

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from millpond import __version__
from millpond.apps.frequency_capping.pipeline import redis_key
from millpond.apps.frequency_capping.rules import text_of
from millpond.datastream.connectors.redis import hidden, is_cluster

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

    @app.exception_handler(redis.RedisError)
    async def redis_is_away(_: Request, problem: Exception) -> JSONResponse:
        text = f"Redis at {hidden(redis_url)} does not answer: {problem}"
        return JSONResponse({"detail": text}, status_code=503)

    @app.get("/v1/allowed")
    async def allowed(
        user: str = Query(min_length=1, examples=["42"]),
        ads: str = Query(min_length=1, description="ids of ads, with commas", examples=["a,b"]),
    ) -> Answer:
        """Ask for some ads of one user, by their ids alone."""
        candidates = [ad for ad in ads.split(",") if ad]
        if not 0 < len(candidates) <= _MOST_ADS:
            raise HTTPException(422, f"ads must name 1 to {_MOST_ADS} ads")
        members = [f"ad:{ad}" for ad in candidates]
        found = await client.smismember(redis_key(user), members)
        capped = {ad: [m] for ad, m, is_in in zip(candidates, members, found, strict=True) if is_in}
        return Answer(
            user=user, allowed=[ad for ad in candidates if ad not in capped], capped=capped
        )

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
