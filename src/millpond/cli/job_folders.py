"""Finds the job folders of jobs that no dispatcher runs."""

from __future__ import annotations

import os
from pathlib import Path

from millpond.errors import CheckpointError

JOB_OR_FOLDER_HELP = (
    "id (or the beginning of it) or name of a dispatcher's job; or the folder of a job"
)


def is_job_folder(job: str, checkpoint_dir: str | None) -> bool:
    """Return True if JOB on a command line means a job folder, False if it means a dispatcher's job."""
    looks_like_a_path = os.sep in job or job in (".", "..")
    return checkpoint_dir is not None or looks_like_a_path or (Path(job) / "job.blob").exists()


def find_job(job: str, checkpoint_dir: str | None) -> Path:
    """Return the job folder that JOB on a command line means: the path itself, or with `checkpoint_dir` the
    folder of the job with that name. Raise CheckpointError if there is no job in it."""
    folder = Path(job)
    if checkpoint_dir is not None:
        from millpond.driver.job_folder import folder_name

        folder = Path(checkpoint_dir) / folder_name(job)
    if not (folder / "job.blob").exists():
        hint = "" if checkpoint_dir else " If it is the name of a job, also give --checkpoint-dir."
        raise CheckpointError(f"{folder} is not the folder of a job.{hint}")
    return folder


def is_running(folder: Path) -> bool:
    """Return True if a process runs the job: it then holds the lock in the folder."""
    from millpond.common.file_lock import is_held

    return is_held(folder / "lock")
