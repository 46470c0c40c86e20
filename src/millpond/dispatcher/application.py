"""Application mode (O4): one job, supervised, without a dispatcher to submit it to; REST if asked for."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from millpond.dispatcher.leadership import FileLeadership
from millpond.dispatcher.server import DispatcherServer, DispatcherSettings
from millpond.dispatcher.service import Dispatcher
from millpond.dispatcher.storage import Storage
from millpond.dispatcher.supervisor import ENDED, Supervisor
from millpond.errors import DispatcherError

_LOOK_EVERY_S = 0.2


def run_application(
    program: Path,
    arguments: list[str],
    settings: dict[str, str],
    storage: Path,
    **rest: Any,
) -> int:
    """Runs a program until its job has ended; the exit code. Started again with the same storage, a job that
    was under way goes on instead of a second one being started. `rest`: where and how to serve REST, as in
    DispatcherSettings; nothing: not at all."""
    if not program.is_file():
        raise DispatcherError(f"There is no program {program}.")
    if not rest:
        own = Storage(storage)
        leadership = FileLeadership(own.root / "leadership")
        dispatcher = Dispatcher(own, leadership, Supervisor(own, leadership))
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
    under_way = [report["jid"] for report in dispatcher.jobs() if report["state"] not in ENDED]
    jid = under_way[0] if under_way else dispatcher.submit(program, arguments, settings)
    shown = 0
    while True:
        report = dispatcher.job(jid)
        shown = _show_log(dispatcher.files(jid).log, shown)
        if report["state"] in ENDED and not dispatcher.files(jid).is_locked():
            _show_log(dispatcher.files(jid).log, shown)
            return 0 if report["state"] == "FINISHED" else 1
        waiting.wait(_LOOK_EVERY_S)


def _show_log(path: Path, shown: int) -> int:
    """What the job has printed since; how much of it is shown now."""
    if not path.exists():
        return shown
    with open(path, encoding="utf-8", errors="replace") as log:
        log.seek(shown if path.stat().st_size >= shown else 0)
        print(log.read(), end="", flush=True)
        return log.tell()
