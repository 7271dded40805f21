"""What a job is refused for, and what makes one fail."""

from towline.errors import Remedy, TowlineError


class UnknownJob(TowlineError, remedy=Remedy.FIX_CALL):
    name: str
    nearest: str
    template = "there is no job {name!r}; the nearest is {nearest!r}"
    advice = "see `towline pipeline list` for the jobs there are"


class IllegalOption(TowlineError, remedy=Remedy.FIX_CALL):
    """An option of a job has a value that cannot be."""

    option: str
    problem: str
    advice = "see `towline pipeline NAME --help` for the job's options"

    def describe(self) -> str:
        return f"--{self.option.replace('_', '-')}: {self.problem}"


class JavaMissing(TowlineError, remedy=Remedy.FIX_SETTINGS):
    looked: str
    template = "Spark needs Java 17 or later: {looked}"
    advice = "install a Java runtime 17 or later, and put it on PATH or name it in JAVA_HOME"


class IllegalMaster(TowlineError, remedy=Remedy.FIX_CALL):
    """A URL that is not one of a Spark master."""

    master: str
    problem: str
    template = "--master {master}: {problem}"
    advice = "give --master local[*], spark://HOST:PORT, yarn or k8s://..., as spark-submit takes them"


class SparkNotStarted(TowlineError, remedy=Remedy.FIX_SETTINGS):
    """There is no Spark session."""

    master: str
    said: str
    log: str  # the file that has all of it, "" for none
    advice = "look at the master's URL, at --conf and at JAVA_HOME"

    def describe(self) -> str:
        return f"no Spark session on {self.master}: {self.said}{_where(self.log)}"


class NoOffsets(TowlineError, remedy=Remedy.FIX_CALL):
    path: str
    template = "{path} does not exist: no consumer group ever committed an offset to this store"
    advice = "name the store of a node that consumer groups read from, a master or its slave"


class JobFailed(TowlineError, remedy=Remedy.RETRY):
    """Spark or a task raised an error."""

    job: str
    said: str
    log: str  # the file that has all of it, "" for none
    advice = "remove the cause that the sentence names; a job that was cut short is simply run again"

    def describe(self) -> str:
        return f"{self.job} failed: {self.said}{_where(self.log)}"


class ScratchNotSeen(TowlineError, remedy=Remedy.FIX_SETTINGS):
    path: str
    machine: str
    template = "{machine} does not see {path} as the driver wrote it, or the run is over"
    advice = (
        "run the job where every executor has the store's file system under the same path, or with --master local[*]"
    )


class AttemptsGoOn(TowlineError, remedy=Remedy.RETRY):
    path: str
    seconds: float
    template = "tasks still write in {path} after {seconds:g} s"
    advice = "nothing was changed: stop the executors of the run, and run the job again"


class LogInPool(TowlineError, remedy=Remedy.RESTART):
    store: str
    size: int
    template = "{size} bytes of the log of {store} stand in the transient pool of a killed node alone"
    advice = "start the node and stop it in order, or run `towline store repair --yes`, which commits them"


class NotRebuilt(TowlineError, remedy=Remedy.FIX_DISK):
    """What a task met; the sentence has a remedy of its own."""

    said: str
    advice = "queues and index are as they were"


class NotAnArchive(TowlineError, remedy=Remedy.FIX_CALL):
    path: str
    problem: str
    template = "{path} is no archive: {problem}"
    advice = "give the directory that `towline pipeline archive` wrote to, or an empty one for a new archive"


class ArchiveDamaged(TowlineError, remedy=Remedy.FIX_DISK):
    path: str
    problem: str
    template = "{path} cannot be read as it was archived: {problem}"
    advice = (
        "bring the file back from a copy, or, while the store has the segment, remove its manifest and archive again"
    )


class ArchiveOfAnother(TowlineError, remedy=Remedy.FIX_CALL):
    archive: str
    store: str
    difference: str
    template = "{archive} is of another log than {store}: {difference}"
    advice = "give each log an archive of its own; after a log was cut (a loss was accepted), begin a new one"


class NotVerified(TowlineError, remedy=Remedy.FIX_DISK):
    path: str
    expected: int
    read: int
    template = "{path} does not hold what was written to it ({expected} messages belong there, {read} are)"
    advice = "nothing of it was published; look at the disk, then run the job again"


class NoSuchMessages(TowlineError, remedy=Remedy.FIX_CALL):
    where: str
    topic: str
    template = "{where} holds no message of topic {topic}"
    advice = "look at the topics that are there; system topics need --system"


class OutputTaken(TowlineError, remedy=Remedy.FIX_CALL):
    path: str
    problem: str
    template = "nothing is written to {path}: {problem}"
    advice = "give a new or empty directory; one of the same job that was cut short is gone on with"


class BodyNotText(TowlineError, remedy=Remedy.FIX_CALL):
    topic: str
    queue_id: int
    queue_offset: int
    offset: int
    template = (
        "the body of the message {topic}, queue {queue_id}, offset {queue_offset} (log offset {offset}) is not UTF-8"
    )
    advice = "give --body base64 or --body hex, or leave the column body out"


def _where(log: str) -> str:
    return f" (everything that Spark said is in {log})" if log else ""
