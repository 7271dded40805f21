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
    advice = (
        "give --master local[*], spark://HOST:PORT, yarn or k8s://..., as spark-submit takes them, or sc://HOST:PORT"
    )


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
    known: str
    template = "{where} holds no message of topic {topic}, but of {known}"
    advice = "give --topic one of those that are there"


class IllegalLocation(TowlineError, remedy=Remedy.FIX_CALL):
    where: str
    problem: str
    template = "nothing can stand at {where}: {problem}"
    advice = "give a directory, or s3://BUCKET/PREFIX, gs://..., hdfs://...; credentials come from the environment"


class LocationFailed(TowlineError, remedy=Remedy.RETRY):
    """An object store does not do what was asked."""

    where: str
    said: str
    template = "{where}: {said}"
    advice = "look at the bucket, at AWS_ENDPOINT_URL, AWS_REGION and the credentials, or what else the store needs"


class LocationTaken(TowlineError, remedy=Remedy.RETRY):
    where: str
    host: str
    pid: int
    left_s: int
    template = "another job writes to {where}: process {pid} of {host}"
    advice = "wait for it; after one that was killed run this job again, {left_s} s later at most"


class LocationLost(TowlineError, remedy=Remedy.RETRY):
    where: str
    template = "this job could not say for too long that it writes to {where}: another one may have begun"
    advice = "nothing more was published; run the job again"


class OtherBytes(TowlineError, remedy=Remedy.RETRY):
    """An object store gives back something else than it was sent."""

    where: str
    template = "{where} does not hold what was sent to it"
    advice = "nothing of it was published; look at the way to the store, then run the job again"


class TableFailed(TowlineError, remedy=Remedy.RETRY):
    where: str
    said: str
    template = "the Delta table at {where} was not brought up to the archive, which is whole: {said}"
    advice = "run the job again with --table delta, which adds what is missing"


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
