"""Application mode (O4): one job in a process of its own, supervised, without a dispatcher."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.dispatcher import programs
from tests.dispatcher.programs import write_program
from tests.dispatcher.running import eventually

DIRECT = ("-D", "millpond.executor=direct")
SPARK = ("--master", "local[2]", "-p", "2")


@contextmanager
def application(
    folder: Path, options: tuple[str, ...], program: Path, *arguments: str
) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "millpond", "run-application", *options]
    command += ["--storage", str(folder / "storage"), str(program), *arguments]
    with (folder / "output").open("a") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, text=True)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)


@pytest.mark.parametrize(("text", "code"), [(programs.BOUNDED, 0), (programs.FAILING, 1)])
def test_exit_code_is_how_the_job_ended(tmp_path: Path, text: str, code: int) -> None:
    with application(tmp_path, DIRECT, write_program(tmp_path, text)) as process:
        assert process.wait(120) == code


@pytest.mark.spark
@pytest.mark.faults
def test_rest_wants_the_token_and_a_job_goes_on_after_kill_9(tmp_path: Path) -> None:
    """The job is the same one: the application was started again with its storage. The token is one that it
    has made there."""
    token_file = tmp_path / "storage" / "token"
    (tmp_path / "lines").mkdir()
    program = write_program(tmp_path, programs.COUNTING)
    options = (*SPARK, "--rest-port", "0")

    def address() -> str | None:
        found = re.findall(r"millpond: (http://\S+)", (tmp_path / "output").read_text())
        return found[-1] if found else None

    def running_job(client: httpx.Client) -> str | None:
        jobs = client.get("/jobs").json()["jobs"]
        return next((own["id"] for own in jobs if own["status"] == "RUNNING"), None)

    jobs = []
    for _ in range(2):
        (tmp_path / "output").write_text("")
        with application(tmp_path, options, program, str(tmp_path / "lines")) as process:
            place = eventually(address, "the address")
            assert httpx.get(f"{place}/jobs").status_code == 401
            headers = {"Authorization": f"Bearer {token_file.read_text().strip()}"}
            with httpx.Client(base_url=place, headers=headers) as client:
                jobs.append(eventually(lambda c=client: running_job(c), "a running job"))
                if len(jobs) == 2:
                    assert client.patch(f"/jobs/{jobs[1]}?mode=cancel").status_code == 202
                    assert process.wait(60) == 1
                    break
            process.send_signal(signal.SIGKILL)
            process.wait()
    assert jobs[0] == jobs[1]
