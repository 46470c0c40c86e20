"""The dispatcher: accepts applications, starts a job manager for each, lists, cancels, stops (O1, O2).

    python -m millpond.dispatcher --storage DIR      REST and dashboard on port 8081

From outside in: `rest/` (Flink's paths and field names), `service.py` (what can be asked for),
`supervisor.py` (keeps the job managers of jobs that should run running), `leadership.py` (who of several
dispatchers may), `storage.py` (files between dispatcher and job managers), `job_manager.py` (the process of
one job). Why it is so: `docs/decisions/0020-operations.md`.
"""
