"""State on a slot's disk: each process has a folder of its own (E44)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from millpond.executors.slot.files import (
    listening,
    own_state_folder,
    remove_files,
    socket_id,
)
from millpond.executors.slot.protocol import private_folder
from millpond.executors.slot.settings import SlotSettings, base_folder


def test_files_of_a_process_that_runs_stay_and_those_of_dead_ones_go(tmp_path: Path) -> None:
    settings = SlotSettings("job", "run", 1, str(tmp_path), 1, 0, 1.0, 1.0, str(tmp_path))
    shared = Path(settings.state_folder(0))
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    outdated = os.getppid()  # a slot that was replaced and does not know it yet
    for pid in (dead.pid, outdated):
        (shared / str(pid)).mkdir(parents=True)
        (shared / str(pid) / "CURRENT").touch()
    own = Path(own_state_folder(settings, 0))
    assert own == shared / str(os.getpid())
    assert [path.name for path in shared.iterdir()] == [str(outdated)]
    assert (shared / str(outdated) / "CURRENT").exists()


def test_slot_that_ends_removes_its_own_state_even_if_it_could_not_close_it(tmp_path: Path) -> None:
    settings = SlotSettings(
        f"job in {tmp_path}", "run", 1, str(tmp_path), 1, 0, 1.0, 1.0, str(tmp_path / "local")
    )
    private_folder(base_folder())
    private_folder(settings.folder)
    for suffix in ("sock", "log", "lock"):
        Path(settings.path(0, suffix)).touch()
    own_socket = socket_id(settings, 0)
    shared = Path(settings.state_folder(0))
    own, outdated = Path(own_state_folder(settings, 0)), shared / str(os.getppid())
    for folder in (own, outdated):
        folder.mkdir(parents=True)
    remove_files(settings, 0, own_socket)
    assert not own.exists()
    assert outdated.exists(), "it belongs to a process that runs"
    assert not Path(settings.folder).exists()


def test_slot_that_ends_late_leaves_the_files_of_its_successor_alone(tmp_path: Path) -> None:
    """Even if the successor's socket has got the same inode, as happens at once on ext4."""
    settings = SlotSettings(f"job in {tmp_path}", "run", 1, str(tmp_path), 1, 0, 1.0, 1.0)
    private_folder(base_folder())
    private_folder(settings.folder)
    path = settings.path(0, "sock")
    with listening(path):
        before = socket_id(settings, 0)
    with listening(path):
        os.utime(path)  # time has passed, however coarse the file system's clock
        remove_files(settings, 0, before)
        assert os.path.exists(path)
        remove_files(settings, 0, socket_id(settings, 0))
        assert not os.path.exists(path)
