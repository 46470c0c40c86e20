"""Turns a program into the plan of a job. Everything that is wrong with the program is found here."""

from __future__ import annotations

from millpond.common import options
from millpond.common.configuration import Configuration
from millpond.common.execution_config import ExecutionConfig
from millpond.common.job import JobID
from millpond.datastream.connectors.base import TwoPhaseSink
from millpond.datastream.stream_graph import OperatorKind, StreamGraph
from millpond.errors import ProgramError
from millpond.plan.physical import JobPlan, build_plan
from millpond.plan.settings import JobSettings, JobStart
from millpond.plan.validate import validate
from millpond.savepoint.restore import check_fit, open_savepoint, saved_maxima, saved_types
from millpond.state.backends import backend_settings

DEFAULT_JOB_NAME = "Millpond Streaming Job"


def plan_job(
    graph: StreamGraph,
    configuration: Configuration,
    config: ExecutionConfig,
    job_name: str | None,
    default_parallelism: int = 1,
) -> JobPlan:
    """Validate a program and return its plan. `default_parallelism` applies if the program sets none. Raises
    ProgramError if the program or a setting is invalid, SavepointError if the savepoint it starts from does
    not fit."""
    options.check(configuration)
    parallelism = config.get_parallelism() or default_parallelism
    maximum = config.get_max_parallelism()
    max_parallelism = maximum if maximum > 0 else None
    validate(graph, parallelism, max_parallelism, config.has_auto_generated_uids_enabled())
    savepoint = open_savepoint(options.SAVEPOINT_PATH.read(configuration))
    plan = build_plan(
        graph,
        job_name or DEFAULT_JOB_NAME,
        parallelism,
        _settings(configuration, parallelism),
        JobStart(
            str(_job_id(configuration)),
            None if savepoint is None else str(savepoint.path),
            {} if savepoint is None else saved_types(savepoint),
        ),
        max_parallelism,
        _is_batch(graph, configuration),
        None if savepoint is None else saved_maxima(savepoint),
    )
    plan.job_parameters = config.get_global_job_parameters()
    if savepoint is not None:
        check_fit(plan, savepoint, options.ALLOW_NON_RESTORED.read(configuration))
    for sink in plan.sinks.values():
        if isinstance(sink.function, TwoPhaseSink):
            sink.function.validate()
    return plan


def _settings(configuration: Configuration, parallelism: int) -> JobSettings:
    return JobSettings(
        lanes=parallelism,
        keeps_order_across_keys=options.ORDER_ACROSS_KEYS.read(configuration),
        frame_records=options.FRAME_RECORDS.read(configuration),
        max_batch_records=options.MAX_BATCH_RECORDS.read(configuration),
        target_batch_ms=options.TARGET_BATCH_MS.read(configuration),
        target_latency_ms=options.TARGET_LATENCY.read_ms_if_set(configuration),
        batch_interval_ms=_batch_interval_ms(configuration),
        min_pause_ms=options.MIN_PAUSE.read_ms(configuration),
        checkpoint_timeout_ms=options.CHECKPOINT_TIMEOUT.read_ms(configuration),
        tolerated_timeouts=options.TOLERATED_TIMEOUTS.read(configuration),
        stop_at_end=options.STOP_AT_END.read(configuration),
        advance_at_end=options.ADVANCE_AT_END.read(configuration),
        state_backend=backend_settings(configuration),
        savepoint_dir=options.SAVEPOINT_DIR.read(configuration),
    )


def _batch_interval_ms(configuration: Configuration) -> int:
    is_direct = options.EXECUTOR.read(configuration) == "direct"
    if is_direct and not configuration.contains_key(options.BATCH_INTERVAL_MS.key):
        return 0  # a batch there costs next to nothing
    return int(options.BATCH_INTERVAL_MS.read(configuration))


def _job_id(configuration: Configuration) -> JobID:
    given = options.JOB_ID.read(configuration)
    return JobID() if given is None else JobID.parse(given, options.JOB_ID.key)


def _is_batch(graph: StreamGraph, configuration: Configuration) -> bool:
    mode = str(options.RUNTIME_MODE.read(configuration)).upper()
    if mode not in ("STREAMING", "BATCH", "AUTOMATIC"):
        raise ProgramError(
            f"{options.RUNTIME_MODE.key} must be STREAMING, BATCH or AUTOMATIC, not '{mode}'."
        )
    sources = [n.function for n in graph.nodes.values() if n.kind is OperatorKind.SOURCE]
    if mode == "AUTOMATIC":
        return all(source.bounded for source in sources)
    if mode == "BATCH" and any(source.endless for source in sources):
        raise ProgramError("BATCH mode needs sources that end; use STREAMING for this program.")
    return mode == "BATCH"
