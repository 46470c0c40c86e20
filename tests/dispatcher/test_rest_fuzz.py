"""Requests made up from the OpenAPI description: none of them breaks the dispatcher (O1)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, settings
from millpond.dispatcher.leadership import FileLeadership
from schemathesis.checks import not_a_server_error

from millpond.dispatcher.resources import Resources
from millpond.dispatcher.rest.app import make_app
from millpond.dispatcher.rest.security import Security
from millpond.dispatcher.service import Dispatcher
from millpond.dispatcher.storage import Storage, Submission
from millpond.dispatcher.supervisor import Supervisor
from tests.dispatcher.test_views import JID, report  # noqa: F401 (a fixture)

logging.getLogger("hypothesis_jsonschema").setLevel(logging.ERROR)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastAPI]:
    folder = tmp_path_factory.mktemp("storage")
    storage = Storage(folder)
    leadership = FileLeadership(folder / "leadership")
    supervisor = Supervisor(storage, leadership, lambda files, epoch: ["true"])
    dispatcher = Dispatcher(storage, leadership, supervisor)
    program = Path(folder) / "app.py"
    program.write_text("")
    storage.add_job(Submission(JID, "app.py", "program/app.py"), program)
    dispatcher.start("http://127.0.0.1")
    yield make_app(dispatcher, Security(), Resources(None), lambda: None)
    dispatcher.close(suspend_jobs=False)


@pytest.fixture(scope="module")
def api(app: FastAPI) -> schemathesis.schemas.BaseSchema:
    return schemathesis.openapi.from_asgi("/openapi.json", app)


schema = schemathesis.pytest.from_fixture("api")


@schema.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_request_breaks_the_dispatcher(case: schemathesis.Case) -> None:
    case.call_and_validate(checks=[not_a_server_error], headers={"Host": "127.0.0.1"})
