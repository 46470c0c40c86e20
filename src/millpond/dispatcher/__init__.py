"""The dispatcher: accepts programs, runs each job in a job manager, lists, cancels and stops jobs (O1, O2).

    python -m millpond.dispatcher --storage DIR      REST and dashboard on port 8081

From the outside in: `rest/` (Flink's paths and field names), `service.py` (what can be asked for),
`supervisor.py` (keeps the job managers of all jobs that should run alive), `leadership.py` (decides which of
several dispatchers may do so), `storage.py` (the files between dispatchers and job managers), `messages.py`
(names for the JSON in them), `job_manager.py` (the process of one job). `docs/decisions/0020-operations.md`
gives the reasons for this design.
"""
