"""A slot: the process that owns a partition's state, timers and opened functions, and writes its log.

It has two threads. The main thread works for the owner, which is the relay that was let in last. The other
one, the door, lets relays in, sends signs of life, and ends the process when nobody needs it any more. Only
the owner's messages are answered: a task attempt with a lower number than one seen before is a zombie and is
refused. If a function declares queryable state, a third thread answers look-ups (`queryable/server.py`).
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millpond.core.job_run import JobRun, read_run
from millpond.core.storage import storage_at
from millpond.engine.exchange.batch import LanePlan
from millpond.engine.host import JobHost
from millpond.engine.passes import Passes
from millpond.engine.sink_pass import SinkHost
from millpond.engine.state_views import StateViews
from millpond.engine.work_meter import Surroundings
from millpond.errors import (
    CorruptDataError,
    MillpondError,
    ProgramError,
    SlotError,
    SlotMemoryError,
    UserFunctionError,
)
from millpond.executors.slot.adoption import ImportedFiles, Offer, receive_offer
from millpond.executors.slot.files import listening, own_state_folder, remove_files, socket_id
from millpond.executors.slot.garbage import IdleCollector
from millpond.executors.slot.lifecycle import SlotLife, SlotState
from millpond.executors.slot.memory import limit_memory, resident_mb
from millpond.executors.slot.output import Tee
from millpond.executors.slot.protocol import (
    BEFORE_ALL_TASKS,
    Connection,
    ConnectionLost,
    MessageKind,
    same_user,
)
from millpond.executors.slot.settings import SlotSettings

if TYPE_CHECKING:
    from millpond.queryable.server import StateServer

_ALIVE_EVERY_S = 1.0
_IDLE_S = 0.02
_GRACE_S = 30.0  # for a function that is still working when its job ends
_INTRODUCTION_S = 5  # for a relay to say who it is
_NOTED_S = 0.2  # between an answer and the note that it was sent


class Slot:
    """The slot of one partition. `run` is for the main thread, `watch` for the thread called the door."""

    def __init__(
        self,
        settings: SlotSettings,
        partition: int,
        listener: socket.socket,
        executor_pid: int,
        output_fd: int,
    ) -> None:
        self._settings = settings
        self._storage = storage_at(settings.storage)
        self._executor_fd: int | None = os.pidfd_open(executor_pid)
        self._output_fd = output_fd
        self._memory_limit_mb = settings.memory_limit_mb()
        self._partition = partition
        self._listener = listener
        self.socket_id = socket_id(settings, partition)
        self._life = SlotLife()
        self._lock = threading.Condition()
        self._owner: Connection | None = None
        self._newest_attempt = BEFORE_ALL_TASKS
        self._used_at_s = time.monotonic()
        self._ending = False
        self._garbage = IdleCollector()
        self._garbage_waits = False
        self._memory_share = 0.0
        self._surroundings = Surroundings(
            time.perf_counter_ns, lambda: self._memory_share, socket.gethostname()
        )
        self._views = StateViews(self._answer_look_ups, threading.Lock())
        self._server: StateServer | None = None
        self._claimed_by: Connection | None = None
        self._passes: Passes | None = None
        self._older_passes: Passes | None = None  # of the run that this slot was adopted from
        self._has_failed = False
        self._files = ImportedFiles()
        self._alone_since_s: float | None = None

    # --- the main thread -------------------------------------------------------------------------

    def run(self) -> None:
        """Work for one owner after the other, until the slot is no longer needed; then close functions."""
        while (owner := self._next_owner()) is not None:
            with contextlib.suppress(ConnectionLost):
                self._serve(owner)
            with self._lock:
                self._used_at_s = time.monotonic()
                if self._owner is owner:
                    self._owner = None
            owner.close()
        with contextlib.suppress(Exception):  # the job has ended, so there is nobody to tell
            self._close_functions()
        self._life.go(SlotState.ENDED)

    def _next_owner(self) -> Connection | None:
        """Wait for a relay to work for, and return it; None when the slot is no longer needed."""
        while True:
            with self._lock:
                if self._owner is None and not self._ending:
                    self._lock.wait(_IDLE_S if self._garbage_waits else None)
                if self._ending:
                    self._life.go(SlotState.CLOSING)
                    return None
                if self._owner is not None:
                    if self._life.state is SlotState.STARTING:
                        self._life.go(SlotState.READY)
                    return self._owner
            if self._garbage_waits:  # nobody has come for a moment: the batch is over
                self._garbage_waits = False
                self._garbage.between_batches(resident_mb())

    def _serve(self, owner: Connection) -> None:
        owner.send(MessageKind.READY)
        while True:
            kind, content = owner.receive()
            with self._lock:
                if self._owner is not owner:
                    raise ConnectionLost("another relay has taken over")
                self._life.go(SlotState.WORKING)
            try:
                self._answer(owner, kind, content)
            except ConnectionLost:
                raise
            except BaseException as problem:
                self._has_failed = True
                error = self._explain(problem)
                arguments = error.args if isinstance(error, UserFunctionError) else (str(error),)
                owner.send(MessageKind.ERROR, (type(error).__name__, list(arguments)))
            finally:
                with self._lock:
                    self._life.go(SlotState.READY)
                    self._lock.notify_all()

    def _answer(self, owner: Connection, kind: MessageKind, content: Any) -> None:
        if kind is MessageKind.PLAN:
            self._load_plan(*content)
            owner.send(MessageKind.DONE)
            return
        assert self._passes is not None
        if kind is MessageKind.LANE:
            sent = self._passes.run_lane(LanePlan.decode(bytes(content), "a lane"))
        elif kind is MessageKind.STAGE:
            if self._server is not None and self._claimed_by is not owner:
                self._server.claim()
                self._claimed_by = owner
            stage, epoch, chunks = content
            sent = self._passes.run_stage(stage, self._partition, epoch, chunks)
            self._garbage_waits = True
        else:
            raise SlotError(f"A slot cannot answer a message of the kind {kind.name}.")
        self._check_memory()
        self._files.note()
        owner.send(MessageKind.DONE, sent)

    def _load_plan(self, blob: bytes, attempt: int) -> None:
        if self._passes is None:
            settings = self._settings
            older: JobHost | None = None
            if self._older_passes is not None:
                older = self._older_passes.retire()
                self._older_passes = None
                self._garbage.look_through_everything()
            try:
                host = JobHost(
                    bytes(blob),
                    self._storage,
                    f"{settings.generation}-{os.urandom(4).hex()}",
                    attempt,
                    own_state_folder(settings, self._partition),
                    self._memory_limit_mb,
                    self._surroundings,
                    self._views,
                    older,
                )
                self._passes = Passes(host, SinkHost(bytes(blob), self._surroundings))
            except ModuleNotFoundError as problem:
                raise ProgramError(missing_module(problem)) from None
            self._files.note()

    def _answer_look_ups(self) -> None:
        """Announce queryable states, and start the server for them. Called when a function declares one."""
        if self._server is None:
            from millpond.queryable.server import ServerSettings, StateServer

            settings = self._settings
            server = ServerSettings(
                Path(settings.storage),
                settings.generation,
                self._partition,
                settings.partitions,
                settings.queryable_host,
                settings.queryable_ports,
            )
            self._server = StateServer(server, self._views).start()
        self._server.announce()

    def _check_memory(self) -> None:
        limit_mb, used_mb = self._memory_limit_mb, resident_mb()
        if used_mb > limit_mb:
            self._garbage.collect_everything()
            used_mb = resident_mb()
        self._memory_share = used_mb / limit_mb  # the driver gets it with the next counts
        if used_mb > limit_mb:
            raise SlotMemoryError(
                f"Slot {self._partition} uses {used_mb:.0f} MB, but its limit is {limit_mb} MB. Raise "
                "millpond.slot.memory-mb, spread the job over more partitions "
                "(parallelism.default), or keep less state (TTL, timers that clear it)."
            )

    def _explain(self, problem: BaseException) -> MillpondError:
        out_of_memory = isinstance(problem, MemoryError) or (
            isinstance(problem, UserFunctionError) and "MemoryError" in problem.cause
        )
        if out_of_memory:
            return SlotMemoryError(
                f"Slot {self._partition} ran out of memory: it may use "
                f"{self._memory_limit_mb} MB. Raise millpond.slot.memory-mb, spread the job "
                "over more partitions (parallelism.default), or keep less state."
            )
        if isinstance(problem, MillpondError):
            return problem
        lines = traceback.format_exception(problem)
        return SlotError(f"Slot {self._partition} failed: " + "".join(lines)[-2000:])

    def _close_functions(self) -> None:
        if self._server is not None:
            self._server.stop()
        for passes in (self._older_passes, self._passes):
            if passes is not None:
                passes.close()

    # --- the door --------------------------------------------------------------------------------

    def watch(self) -> None:
        """Let relays in and send signs of life, until the slot is no longer needed. Ends the process at once
        when the executor dies, unless the slot may be adopted."""
        try:
            self._watch()
        except BaseException:  # a slot that nobody can reach or end must not stay
            traceback.print_exc()
            os._exit(1)

    def _watch(self) -> None:
        unneeded_since_s: float | None = None
        while True:
            ready = self._await_something()
            if self._executor_fd in ready:
                self._lose_executor()
            if not self._ending and self._listener.fileno() in ready:
                with contextlib.suppress(OSError, ConnectionLost):
                    self._let_in(self._listener.accept()[0])
            with self._lock:
                owner = self._owner
                unneeded = self._ending or self._is_unneeded()
                if unneeded and self._life.state is not SlotState.WORKING:
                    self._end()
                    return
                if unneeded and self._executor_fd is None:
                    self._exit(0)  # nobody waits for what it is doing
            now_s = time.monotonic()
            unneeded_since_s = (unneeded_since_s or now_s) if unneeded else None
            if unneeded_since_s is not None and now_s - unneeded_since_s > _GRACE_S:
                print(
                    f"slot {self._partition}: killed, because a function was still running after its job",
                    flush=True,
                )
                self._exit(1)
            if owner is not None:
                owner.send_alive()

    def _await_something(self) -> set[int]:
        """Return the descriptors at which something has happened: the listener's, the executor's."""
        poll = select.poll()
        if not self._ending:
            poll.register(self._listener, select.POLLIN)
        if self._executor_fd is not None:
            poll.register(self._executor_fd, select.POLLIN)
        return {fd for fd, _ in poll.poll(_ALIVE_EVERY_S * 1000)}

    def _lose_executor(self) -> None:
        assert self._executor_fd is not None
        if not self._is_worth_keeping() or self._files.changed() is not None:
            self._exit(0)  # there is nobody to tell and nothing to save
        os.close(self._executor_fd)
        self._executor_fd = None

    def _exit(self, code: int) -> None:
        """End the process, whatever it is doing."""
        remove_files(self._settings, self._partition, self.socket_id)
        os._exit(code)

    def _let_in(self, sock: socket.socket) -> None:
        if not same_user(sock):
            sock.close()
            return
        connection = Connection(sock)
        sock.settimeout(_INTRODUCTION_S)
        kind, hello = connection.receive()
        if kind is not MessageKind.HELLO:
            connection.close()
            return
        if self._is_lost_to(hello):
            self._be_adopted(connection)
        sock.settimeout(None)
        settings, attempt = self._settings, hello["attempt"]
        with self._lock:
            if self._is_lost_to(hello):
                if self._life.state is SlotState.WORKING and self._executor_fd is None:
                    self._exit(0)  # it would keep the new run waiting for what nobody needs
                connection.send(MessageKind.OUTDATED)
                self._end()
                connection.close()
            elif hello["run"] != settings.run_id:
                text = f"run {settings.generation} of the job has taken over"
                connection.send(MessageKind.REFUSED, text)
                connection.close()
            elif self._life.state is SlotState.ORPHANED:
                connection.send(
                    MessageKind.REFUSED, f"run {settings.generation} of the job is over"
                )
                connection.close()
            elif attempt < self._newest_attempt:
                text = f"task attempt {self._newest_attempt} has taken over from {attempt}"
                connection.send(MessageKind.REFUSED, text)
                connection.close()
            else:
                has_plan = self._passes is not None
                connection.send(MessageKind.WELCOME, {"pid": os.getpid(), "has_plan": has_plan})
                # The attempt before it has ended, or is a zombie. The next request undoes what that did.
                self._drop_owner()
                self._owner = connection
                self._newest_attempt = attempt
                self._used_at_s = time.monotonic()
                self._lock.notify()

    def _is_lost_to(self, hello: dict[str, Any]) -> bool:
        """Return whether a relay belongs to a newer run, or to another executor of this run, which Spark has
        started in place of the one that is gone."""
        settings = self._settings
        is_newer = bool(hello["generation"] > settings.generation)
        return is_newer or (hello["run"] == settings.run_id and self._executor_fd is None)

    def _be_adopted(self, connection: Connection) -> None:
        """Join the run and the executor to which a relay belongs, if this slot is worth it and the relay's
        offer fits."""
        if not self._is_worth_keeping() or self._is_working() or self._files.changed() is not None:
            return
        offer = receive_offer(connection)
        try:
            # A module that the program ships is in another folder for every run, and may be another one.
            gone = set(sys.path) - set(offer.module_path)
            fits = self._settings.is_same_but_for_the_run(offer.settings)
            if fits and not self._files.any_below(gone):
                self._join(offer)
        finally:
            os.close(offer.output_fd)

    def _is_working(self) -> bool:
        """Return whether this slot has not sent its answer. When it has, it takes a moment to note that."""
        with self._lock:
            return not self._lock.wait_for(self._is_not_working, _NOTED_S)

    def _is_not_working(self) -> bool:
        return self._life.state is not SlotState.WORKING

    def _join(self, offer: Offer) -> None:
        executor_fd = os.pidfd_open(offer.executor_pid)
        with self._lock:
            if self._life.state is SlotState.WORKING:
                os.close(executor_fd)
                return
            self._drop_owner()
            if self._life.state is SlotState.ORPHANED:
                self._life.go(SlotState.READY)
            if self._executor_fd is not None:
                os.close(self._executor_fd)
            self._executor_fd = executor_fd
            self._alone_since_s = None
            if offer.settings.run_id != self._settings.run_id:
                self._settings = offer.settings
                self._newest_attempt = BEFORE_ALL_TASKS
                self._older_passes, self._passes = self._passes, None
        os.dup2(offer.output_fd, self._output_fd)
        os.environ.clear()
        os.environ.update(offer.environment)
        sys.path[:] = offer.module_path

    def _is_worth_keeping(self) -> bool:
        """Return whether there is anything that a newer run could use, and nothing wrong with it."""
        return (
            self._settings.keep_s > 0
            and self._passes is not None
            and not self._has_failed
            and self._server is None  # which belongs to its run
        )

    def _is_unneeded(self) -> bool:
        if self._owner is None:
            used_at_s = self._used_at_s
            if self._server is not None:
                used_at_s = max(used_at_s, self._server.used_at_s)
            idle_s = time.monotonic() - used_at_s
            if idle_s > self._settings.idle_timeout_s:
                return True
        try:
            run = read_run(self._storage)
        except CorruptDataError:
            return True
        except OSError:
            return False  # a shared folder may be unreachable for a moment
        own = JobRun(self._settings.generation, is_going_on=True)
        if run == own and self._executor_fd is not None:
            return False
        if run is None or not run.is_going_on or not self._is_worth_keeping():
            return True
        if self._alone_since_s is None:
            self._alone_since_s = time.monotonic()
        if self._life.state is SlotState.READY:
            self._drop_owner()
            self._life.go(SlotState.ORPHANED)
        return time.monotonic() - self._alone_since_s > self._settings.keep_s

    def _drop_owner(self) -> None:
        if self._owner is not None:
            self._owner.close()
            self._owner = None

    def _end(self) -> None:
        self._ending = True
        self._drop_owner()
        self._listener.close()
        self._lock.notify()


def missing_module(problem: ModuleNotFoundError) -> str:
    """Return the message for a module that workers lack. It names the module and says what to do."""
    return (
        f"Workers cannot import '{problem.name}', which the program uses. Call "
        "env.add_python_file() with the module, package folder or zip, or install it on the workers."
    )


def main() -> None:
    """Run a slot. The one argument is JSON with settings, partition, executor_pid, ready_fd, output_fd."""
    arguments = json.loads(sys.argv[1])
    settings, partition = SlotSettings(**arguments["settings"]), arguments["partition"]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, which ends the job
    faulthandler.enable()
    sys.stdout = sys.stderr = Tee(2, arguments["output_fd"])
    limit_memory(settings.memory_limit_mb())
    with listening(settings.path(partition, "sock")) as listener:
        slot = Slot(
            settings, partition, listener, arguments["executor_pid"], arguments["output_fd"]
        )
        os.write(arguments["ready_fd"], b"ready")
        os.close(arguments["ready_fd"])
        threading.Thread(target=slot.watch, name="door", daemon=True).start()
        slot.run()
        remove_files(settings, partition, slot.socket_id)
