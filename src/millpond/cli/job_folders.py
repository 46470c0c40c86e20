"""Finds jobs by their folders."""

from __future__ import annotations

import os
from pathlib import Path

from millpond.errors import CheckpointError


def is_job_folder(job: str, checkpoint_dir: str | None) -> bool:
    """Whether JOB on a command line means a folder. Else it is a job that a dispatcher knows."""
    looks_like_a_path = os.sep in job or job in (".", "..")
    return checkpoint_dir is not None or looks_like_a_path or (Path(job) / "job.blob").exists()


def find_job(job: str, checkpoint_dir: str | None) -> Path:
    """The folder of a job: itself, or by the job's name below a folder for checkpoints."""
    folder = Path(job)
    if checkpoint_dir is not None:
        from millpond.driver.job_folder import folder_name

        folder = Path(checkpoint_dir) / folder_name(job)
    if not (folder / "job.blob").exists():
        hint = "" if checkpoint_dir else " If it is a job's name, give --checkpoint-dir, too."
        raise CheckpointError(f"{folder} is not the folder of a job.{hint}")
    return folder


def is_running(folder: Path) -> bool:
    """Whoever runs a job holds its lock."""
    from millpond.common.file_lock import is_held

    return is_held(folder / "lock")
