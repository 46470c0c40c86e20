"""Application mode (O4): runs and supervises one job without a separate dispatcher; can serve REST."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TypedDict, Unpack

from millpond.common.job import JobStatus
from millpond.dispatcher.leadership import FileLeadership
from millpond.dispatcher.messages import has_ended
from millpond.dispatcher.server import DispatcherServer, DispatcherSettings
from millpond.dispatcher.service import Dispatcher
from millpond.dispatcher.storage import Storage
from millpond.dispatcher.supervisor import Supervisor
from millpond.errors import DispatcherError

_LOOK_EVERY_S = 0.2


class RestSettings(TypedDict, total=False):
    """Where and how to serve REST; each field as in `DispatcherSettings`."""

    host: str
    port: int
    token_file: Path | None
    no_token: bool
    tls_cert: str | None
    tls_key: str | None


def run_application(
    program: Path,
    arguments: list[str],
    settings: dict[str, str],
    storage: Path,
    **rest: Unpack[RestSettings],
) -> int:
    """Run a program until its job has ended, and return the exit code: 0 if the job has finished, else 1.

    If the storage holds a job that has not ended, that job continues and no second one is started. REST is
    not served unless `rest` says where. Raise DispatcherError if there is no file `program`."""
    if not program.is_file():
        raise DispatcherError(f"There is no program {program}.")
    if not rest:
        folder = Storage(storage)
        leadership = FileLeadership(folder.root / "leadership")
        dispatcher = Dispatcher(folder, leadership, Supervisor(folder, leadership))
        dispatcher.start("")
        try:
            return _follow(dispatcher, program, arguments, settings)
        finally:
            dispatcher.close(suspend_jobs=True)
    server = DispatcherServer(DispatcherSettings(storage, **rest))
    serving = threading.Thread(
        target=server.run, args=(lambda address: _tell(address, server.token_file),), daemon=True
    )
    serving.start()
    try:
        return _follow(server.dispatcher, program, arguments, settings)
    finally:
        server.stop()
        serving.join()


def _tell(address: str, token_file: Path | None) -> None:
    print(f"millpond: {address}", flush=True)
    if token_file is not None:
        print(f"millpond: clients need the token in {token_file}", flush=True)


def _follow(
    dispatcher: Dispatcher, program: Path, arguments: list[str], settings: dict[str, str]
) -> int:
    waiting = threading.Event()
    while dispatcher.leadership.epoch is None:
        waiting.wait(_LOOK_EVERY_S)
    under_way = [report["jid"] for report in dispatcher.jobs() if not has_ended(report)]
    jid = under_way[0] if under_way else dispatcher.submit(program, arguments, settings)
    shown = 0
    while True:
        report = dispatcher.job(jid)
        shown = _show_log(dispatcher.files(jid).log, shown)
        if has_ended(report) and not dispatcher.files(jid).is_locked():
            _show_log(dispatcher.files(jid).log, shown)
            return 0 if JobStatus.of(report) is JobStatus.FINISHED else 1
        waiting.wait(_LOOK_EVERY_S)


def _show_log(path: Path, shown: int) -> int:
    """Print what the job has printed since, and return how much of its log has been shown."""
    if not path.exists():
        return shown
    with open(path, encoding="utf-8", errors="replace") as log:
        log.seek(shown if path.stat().st_size >= shown else 0)
        print(log.read(), end="", flush=True)
        return log.tell()
