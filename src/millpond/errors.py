"""Everything Millpond raises on purpose.

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
 |   +- CheckpointInUseError      another running job owns it
 |   +- IncompatibleCheckpointError   the program does not fit what is stored
 |   +- CorruptDataError          a stored file or blob fails its checksum
 |   +- StateLostError            state that is kept in memory only is gone
 +- LeadershipError           who leads, or which jobs there are, cannot be found out or written
 |   +- LeadershipLost            ... because this dispatcher does not lead (any more)
 +- QueryableStateError       a look-up has no answer
 |   +- UnknownStateError         the job has no queryable state of this name
 |   +- UnknownKeyError           the state has nothing for this key
 |   +- RetryLaterError           not now: the job restarts, or has not loaded the state yet
 +- JobExecutionError         a running job failed
     +- UserFunctionError         ... inside a user's function
     +- SparkDriverError          ... because Spark's driver process died
     +- SlotError                 ... because a slot died, hung or could not be started
     |   +- SlotMemoryError           ... or used more memory than it may
     +- JobCancelledError         ... because somebody cancelled it
"""

from __future__ import annotations


class MillpondError(Exception):
    """Base of all errors Millpond raises on purpose."""


class ProgramError(MillpondError):
    """The program is not valid; nothing has been run."""


class UnsupportedFeatureError(ProgramError, NotImplementedError):
    """PyFlink has this and Millpond does not. The text names the feature and the alternative."""


class TypeMismatchError(MillpondError, TypeError):
    """A value does not fit the type declared for it."""


class SetupError(MillpondError):
    """The machine lacks something Millpond needs; the text says how to get it."""


class ClusterError(MillpondError):
    """A cluster cannot be started or stopped, or one of its processes has ended."""


class DispatcherError(MillpondError):
    """A dispatcher cannot do what it was asked for."""

    def __init__(self, text: str, status: int = 0) -> None:
        self.status = status  # of HTTP; 0 if there is none
        super().__init__(text)


class DispatcherUnreachableError(DispatcherError):
    """No dispatcher answers."""


class UnknownJobError(DispatcherError):
    """The dispatcher has no such job, or several that could be meant."""


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
    """State of a job that keeps none but in memory is gone with its slot."""


class LeadershipError(MillpondError):
    """Who of several dispatchers leads, or which jobs there are, cannot be found out or written."""


class LeadershipLost(LeadershipError):
    """This dispatcher does not lead, or does not lead any more: another one may."""


class QueryableStateError(MillpondError):
    """A look-up of queryable state has no answer."""


class UnknownStateError(QueryableStateError):
    """The job has no queryable state of this name."""


class UnknownKeyError(QueryableStateError, KeyError):
    """The state has nothing for this key."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would quote it


class RetryLaterError(QueryableStateError):
    """There is no answer now, but there will be: the job restarts, or has not loaded the state yet."""


class JobExecutionError(MillpondError):
    """A running job failed."""


class JobCancelledError(JobExecutionError):
    """The job was cancelled before it finished."""


class CheckpointTimeoutError(JobExecutionError):
    """A batch took longer than it may, and was given up. Another attempt runs it again."""

    def __init__(self, epoch: int, text: str) -> None:
        self.epoch = epoch
        super().__init__(text)


class SparkDriverError(JobExecutionError):
    """Spark's driver process, a JVM, died. Another attempt gets a new one, if it `can_be_replaced`."""

    def __init__(self, text: str, can_be_replaced: bool = True) -> None:
        self.can_be_replaced = can_be_replaced
        super().__init__(text)


class SlotError(JobExecutionError):
    """A slot died, hung, refused a task or could not be started."""


class SlotMemoryError(SlotError):
    """A slot used more memory than it may."""


class UserFunctionError(JobExecutionError):
    """A user's function raised. Names the operator, the subtask and the record."""

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
