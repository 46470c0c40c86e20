"""All errors that Millpond raises on purpose.

MillpondError
 +- ProgramError              the program is refused before anything runs
 |   +- UnsupportedFeatureError   PyFlink has it, Millpond does not (yet)
 +- TypeMismatchError         a value does not fit the declared type
 +- SetupError                the machine lacks something (Java, Spark)
 +- ClusterError              a cluster cannot be started, or one of its processes ends
 +- DispatcherError           a dispatcher refuses a request
 |   +- DispatcherUnreachableError   no dispatcher answers
 |   +- UnknownJobError           the dispatcher has no such job
 +- CheckpointError           a job folder cannot be used
 |   +- SavepointError            a savepoint cannot be written, read or used by the program
 |   +- CheckpointInUseError      another running job owns it
 |   +- IncompatibleCheckpointError   the program does not fit what is stored
 |   +- CorruptDataError          a stored file or blob fails its checksum
 |   +- StateLostError            state that is kept only in memory is gone
 +- LeadershipError           the leader, or the list of jobs, cannot be read or written
 |   +- LeadershipLost            ... because this dispatcher is not, or is no longer, the leader
 +- QueryableStateError       a look-up has no answer
 |   +- UnknownStateError         the job has no queryable state of this name
 |   +- UnknownKeyError           the state has nothing for this key
 |   +- RetryLaterError           not yet: the job is restarting, or has not loaded the state
 +- JobExecutionError         a running job failed
     +- UserFunctionError         ... inside a user's function
     +- SparkDriverError          ... because Spark's driver process died
     +- StorageError              ... because its job folder cannot be written
     +- CheckpointTimeoutError    ... because a batch exceeded its time limit
     +- SlotError                 ... because a slot died, hung or could not be started
     |   +- SlotMemoryError           ... or exceeded its memory limit
     +- JobCancelledError         ... because it was cancelled
"""

from __future__ import annotations


class MillpondError(Exception):
    """Base class of all errors that Millpond raises on purpose."""


class ProgramError(MillpondError):
    """The program is invalid. Nothing has run yet."""


class UnsupportedFeatureError(ProgramError, NotImplementedError):
    """A feature of PyFlink that Millpond does not have. The message names it and says what to use instead."""


class TypeMismatchError(MillpondError, TypeError):
    """A value does not fit the type declared for it."""


class SetupError(MillpondError):
    """The machine lacks something that Millpond needs. The message says how to get it."""


class ClusterError(MillpondError):
    """A cluster cannot be started or stopped, or one of its processes has ended unexpectedly."""


class DispatcherError(MillpondError):
    """A dispatcher cannot do what was requested. `status` is the HTTP status of its answer; 0 if there was
    no answer."""

    def __init__(self, text: str, status: int = 0) -> None:
        self.status = status
        super().__init__(text)


class DispatcherUnreachableError(DispatcherError):
    """No dispatcher answers."""


class UnknownJobError(DispatcherError):
    """The dispatcher has no such job, or the given id or name fits several."""


class CheckpointError(MillpondError):
    """A job folder cannot be used."""


class SavepointError(CheckpointError):
    """A savepoint cannot be written, read, or used by this program."""


class CheckpointInUseError(CheckpointError):
    """Another running job owns this job folder."""


class IncompatibleCheckpointError(CheckpointError):
    """The program does not fit what is stored in the job folder."""


class CorruptDataError(CheckpointError):
    """A stored file or blob fails its checksum or has an unknown format version."""


class StateLostError(CheckpointError):
    """State that the job keeps only in memory was lost with its slot."""


class LeadershipError(MillpondError):
    """The leading dispatcher, or the list of jobs, cannot be determined or written."""


class LeadershipLost(LeadershipError):
    """This dispatcher is not, or is no longer, the leader; another one may be."""


class QueryableStateError(MillpondError):
    """A look-up of queryable state has no answer."""


class UnknownStateError(QueryableStateError):
    """The job has no queryable state with this name."""


class UnknownKeyError(QueryableStateError, KeyError):
    """The state has nothing for this key."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would quote it


class RetryLaterError(QueryableStateError):
    """There is no answer yet, because the job is restarting or has not loaded the state. Try again later."""


class JobExecutionError(MillpondError):
    """A running job failed."""


class JobCancelledError(JobExecutionError):
    """The job was cancelled before it finished."""


class StorageError(JobExecutionError):
    """The job folder cannot be written, because the disk is full or fails. What counted before still does."""


class CheckpointTimeoutError(JobExecutionError):
    """A batch exceeded its time limit and was abandoned; the next attempt runs it again. `epoch` is its
    number."""

    def __init__(self, epoch: int, text: str) -> None:
        self.epoch = epoch
        super().__init__(text)


class SparkDriverError(JobExecutionError):
    """Spark's driver process, a JVM, died. If it `can_be_replaced`, another attempt gets a new one."""

    def __init__(self, text: str, can_be_replaced: bool = True) -> None:
        self.can_be_replaced = can_be_replaced
        super().__init__(text)


class BatchInconsistentError(JobExecutionError):
    """Parts of a batch have built upon different runs of the same work, so the batch has to run again."""


class SlotError(JobExecutionError):
    """A slot died, hung, refused a task or could not be started."""


class SlotMemoryError(SlotError):
    """A slot exceeded its memory limit."""


class UserFunctionError(JobExecutionError):
    """A user's function raised. The message names the operator, the subtask, the record and the user's
    code."""

    def __init__(
        self, operator: str, subtask: int, action: str, record: str, cause: str, traceback: str
    ) -> None:
        self.operator = operator
        self.subtask = subtask
        self.action = action
        self.record = record
        self.cause = cause
        self.traceback = traceback
        super().__init__(operator, subtask, action, record, cause, traceback)

    def __str__(self) -> str:
        lines = [f"{self.cause}", f"  in operator '{self.operator}' (subtask {self.subtask})"]
        lines.append(f"  while: {self.action}")
        if self.record:
            lines.append(f"  record: {self.record}")
        if self.traceback:
            lines.append("  user code:")
            lines.extend("    " + line for line in self.traceback.rstrip().splitlines())
        return "\n".join(lines)
