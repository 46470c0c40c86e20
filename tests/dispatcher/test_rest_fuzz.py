"""Requests made up from the OpenAPI description: none of them breaks the dispatcher (O1)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error

from millpond.dispatcher.leadership import FileLeadership
from millpond.dispatcher.resources import Resources
from millpond.dispatcher.rest.app import make_app
from millpond.dispatcher.rest.security import Security
from millpond.dispatcher.service import Dispatcher
from millpond.dispatcher.storage import Storage, Submission
from millpond.dispatcher.supervisor import Supervisor
from tests.dispatcher.running import eventually
from tests.dispatcher.test_views import JID, make_report


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastAPI]:
    """With a job and its report, so that requests get further than to 404."""
    folder = tmp_path_factory.mktemp("storage")
    storage = Storage(folder)
    leadership = FileLeadership(folder / "leadership")
    supervisor = Supervisor(storage, leadership, lambda files, epoch: ["true"])
    dispatcher = Dispatcher(storage, leadership, supervisor)
    program = Path(folder) / "app.py"
    program.write_text("")
    files = storage.add_job(Submission(JID, "app.py", "program/app.py"), program)
    files.write_report(make_report())
    dispatcher.start("http://127.0.0.1")
    eventually(lambda: leadership.epoch, "leadership")
    yield make_app(dispatcher, Security(), Resources(None), lambda: None)
    dispatcher.close(suspend_jobs=False)


def test_no_request_breaks_the_dispatcher(app: FastAPI) -> None:
    api = schemathesis.openapi.from_asgi("/openapi.json", app)
    tried = 0
    for operation in api.get_all_operations():
        own = operation.ok()

        @given(case=own.as_strategy())
        @settings(
            max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), database=None
        )
        def ask(case: schemathesis.Case) -> None:
            if str((case.path_parameters or {}).get("jid", "")).startswith(tuple("02468ace")):
                case.path_parameters["jid"] = JID
            response = case.call(headers={"Host": "127.0.0.1"})
            assert response.status_code < 500 or response.status_code == 503, (
                case,
                response.content,
            )
            if response.status_code != 503:
                case.validate_response(response, checks=[not_a_server_error])

        ask()
        tried += 1
    assert tried > 30
