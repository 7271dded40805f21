"""What a job is refused for, and what makes one fail."""

from towline.errors import Remedy, TowlineError


class UnknownJob(TowlineError):
    """Facts: the name, the nearest right one."""

    remedy = Remedy.FIX_CALL
    advice = "see `towline pipeline list` for the jobs there are"

    def __init__(self, name: str, nearest: str) -> None:
        self.name, self.nearest = name, nearest
        super().__init__(name, nearest)

    def describe(self) -> str:
        return f"there is no job {self.name!r}; the nearest is {self.nearest!r}"


class IllegalOption(TowlineError):
    """An option of a job. Facts: its name, what is wrong."""

    remedy = Remedy.FIX_CALL
    advice = "see `towline pipeline NAME --help` for the job's options"

    def __init__(self, option: str, problem: str) -> None:
        self.option, self.problem = option, problem
        super().__init__(option, problem)

    def describe(self) -> str:
        return f"--{self.option.replace('_', '-')}: {self.problem}"


class JavaMissing(TowlineError):
    """Facts: where it was looked for, and what was found there."""

    remedy = Remedy.FIX_SETTINGS
    advice = "install a Java runtime 17 or later, and put it on PATH or name it in JAVA_HOME"

    def __init__(self, looked: str) -> None:
        self.looked = looked
        super().__init__(looked)

    def describe(self) -> str:
        return f"Spark needs Java 17 or later: {self.looked}"


class IllegalMaster(TowlineError):
    """Facts: the URL, what is wrong."""

    remedy = Remedy.FIX_CALL
    advice = "give --master local[*], spark://HOST:PORT, yarn or k8s://..., as spark-submit takes them"

    def __init__(self, master: str, problem: str) -> None:
        self.master, self.problem = master, problem
        super().__init__(master, problem)

    def describe(self) -> str:
        return f"--master {self.master}: {self.problem}"


class SparkNotStarted(TowlineError):
    """Facts: the master's URL, what Spark said, the file that has all of it (empty: none)."""

    remedy = Remedy.FIX_SETTINGS
    advice = "look at the master's URL, at --conf and at JAVA_HOME"

    def __init__(self, master: str, said: str, log: str) -> None:
        self.master, self.said, self.log = master, said, log
        super().__init__(master, said, log)

    def describe(self) -> str:
        return f"no Spark session on {self.master}: {self.said}{_where(self.log)}"


class NoOffsets(TowlineError):
    """Facts: the path."""

    remedy = Remedy.FIX_CALL
    advice = "name the store of a node that consumer groups read from, a master or its slave"

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(path)

    def describe(self) -> str:
        return f"{self.path} does not exist: no consumer group ever committed an offset to this store"


class JobFailed(TowlineError):
    """Spark or a task raised an error. Facts: job, the error in one sentence, the file that has all of it."""

    remedy = Remedy.RETRY
    advice = "remove the cause that the sentence names; a job that was cut short is simply run again"

    def __init__(self, job: str, said: str, log: str) -> None:
        self.job, self.said, self.log = job, said, log
        super().__init__(job, said, log)

    def describe(self) -> str:
        return f"{self.job} failed: {self.said}{_where(self.log)}"


class ScratchNotSeen(TowlineError):
    """A task does not find what the driver wrote. Facts: the directory, the machine."""

    remedy = Remedy.FIX_SETTINGS
    advice = (
        "run the job where every executor has the store's file system under the same path, or with --master local[*]"
    )

    def __init__(self, path: str, machine: str) -> None:
        self.path, self.machine = path, machine
        super().__init__(path, machine)

    def describe(self) -> str:
        return f"{self.machine} does not see {self.path} as the driver wrote it, or the run is over"


class AttemptsGoOn(TowlineError):
    """Tasks that Spark gave up still write. Facts: the directory, seconds waited."""

    remedy = Remedy.RETRY
    advice = "nothing was changed: stop the executors of the run, and run the job again"

    def __init__(self, path: str, seconds: float) -> None:
        self.path, self.seconds = path, seconds
        super().__init__(path, seconds)

    def describe(self) -> str:
        return f"tasks still write in {self.path} after {self.seconds:g} s"


class LogInPool(TowlineError):
    """A killed node left a part of the log in memory. Facts: the store, bytes."""

    remedy = Remedy.RESTART
    advice = "start the node and stop it in order, or run `towline store repair --yes`, which commits them"

    def __init__(self, store: str, size: int) -> None:
        self.store, self.size = store, size
        super().__init__(store, size)

    def describe(self) -> str:
        return f"{self.size} bytes of the log of {self.store} stand in the transient pool of a killed node alone"


class NotRebuilt(TowlineError):
    """What a task met. Facts: its sentence, which has a remedy of its own."""

    remedy = Remedy.FIX_DISK
    advice = "queues and index are as they were"

    def __init__(self, said: str) -> None:
        self.said = said
        super().__init__(said)

    def describe(self) -> str:
        return self.said


class NotAnArchive(TowlineError):
    """Facts: the directory, what is wrong."""

    remedy = Remedy.FIX_CALL
    advice = "give the directory that `towline pipeline archive` wrote to, or an empty one for a new archive"

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(path, problem)

    def describe(self) -> str:
        return f"{self.path} is no archive: {self.problem}"


class ArchiveDamaged(TowlineError):
    """A file that a manifest names is not there, or not as it was written. Facts: the file, what is wrong."""

    remedy = Remedy.FIX_DISK
    advice = (
        "bring the file back from a copy, or, while the store has the segment, remove its manifest and archive again"
    )

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(path, problem)

    def describe(self) -> str:
        return f"{self.path} cannot be read as it was archived: {self.problem}"


class ArchiveOfAnother(TowlineError):
    """An archive holds one log. Facts: the archive, the store, in what they differ."""

    remedy = Remedy.FIX_CALL
    advice = "give each log an archive of its own; after a log was cut (a loss was accepted), begin a new one"

    def __init__(self, archive: str, store: str, difference: str) -> None:
        self.archive, self.store, self.difference = archive, store, difference
        super().__init__(archive, store, difference)

    def describe(self) -> str:
        return f"{self.archive} is of another log than {self.store}: {self.difference}"


class NotVerified(TowlineError):
    """What was written is not what is read back. Facts: the file, messages that belong in it, messages read."""

    remedy = Remedy.FIX_DISK
    advice = "nothing of it was published; look at the disk, then run the job again"

    def __init__(self, path: str, expected: int, read: int) -> None:
        self.path, self.expected, self.read = path, expected, read
        super().__init__(path, expected, read)

    def describe(self) -> str:
        return (
            f"{self.path} does not hold what was written to it ({self.expected} messages belong there, {self.read} are)"
        )


class NoSuchMessages(TowlineError):
    """Facts: where, the topic."""

    remedy = Remedy.FIX_CALL
    advice = "look at the topics that are there; system topics need --system"

    def __init__(self, where: str, topic: str) -> None:
        self.where, self.topic = where, topic
        super().__init__(where, topic)

    def describe(self) -> str:
        return f"{self.where} holds no message of topic {self.topic}"


class OutputTaken(TowlineError):
    """Facts: the directory, what is in it."""

    remedy = Remedy.FIX_CALL
    advice = "give a new or empty directory; one of the same job that was cut short is gone on with"

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(path, problem)

    def describe(self) -> str:
        return f"nothing is written to {self.path}: {self.problem}"


class BodyNotText(TowlineError):
    """Facts: topic, queue id, queue offset, log offset of the message."""

    remedy = Remedy.FIX_CALL
    advice = "give --body base64 or --body hex, or leave the column body out"

    def __init__(self, topic: str, queue_id: int, queue_offset: int, offset: int) -> None:
        self.topic, self.queue_id, self.queue_offset, self.offset = topic, queue_id, queue_offset, offset
        super().__init__(topic, queue_id, queue_offset, offset)

    def describe(self) -> str:
        where = f"{self.topic}, queue {self.queue_id}, offset {self.queue_offset} (log offset {self.offset})"
        return f"the body of the message {where} is not UTF-8"


def _where(log: str) -> str:
    return f" (everything that Spark said is in {log})" if log else ""
