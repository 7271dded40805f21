"""Progress of a job: tasks of Spark's stages, or whatever the job counts itself."""

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # a job without a JVM, and the registry, load no pyspark
    from pyspark import StatusTracker
    from pyspark.sql import SparkSession

EVERY_S: Final = 0.2
Show = Callable[[str, int, int | None], None]  # what is done, how many of it, of how many (None: not known)


def is_remote(spark: "SparkSession") -> bool:
    """Whether the session is one of Spark Connect, which has no context."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


class Progress:
    """Given to every job. Without `show` nothing is reported, and nothing is asked of Spark."""

    def __init__(self, show: Show | None = None) -> None:
        self._show = show

    def report(self, what: str, done: int, total: int | None = None) -> None:
        """The count of a step, from 0 to `total`; the next step has another name."""
        if self._show is not None:
            self._show(what, done, total)

    @contextmanager
    def stage(self, spark: "SparkSession", what: str) -> Iterator[None]:
        """While Spark works inside: the tasks that are done. Every action inside belongs to one job group."""
        if self._show is None:
            yield
            return
        if is_remote(spark):
            with self._told_by(spark, what):
                yield
            return
        group = f"{what} {uuid.uuid4().hex[:8]}"
        context = spark.sparkContext
        context.setJobGroup(group, what, interruptOnCancel=True)
        ended = threading.Event()
        tracker = context.statusTracker()
        watcher = threading.Thread(target=self._watch, args=(tracker, group, what, ended), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
            context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
            context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]

    @contextmanager
    def _told_by(self, spark: "SparkSession", what: str) -> Iterator[None]:
        """The client of Spark Connect hears of tasks by itself."""
        seen: dict[int, tuple[int, int]] = {}

        def heard(stages: Iterable[Any] | None, *_: Any, **__: Any) -> None:
            for stage in stages or ():
                seen[stage.stage_id] = stage.num_completed_tasks, stage.num_tasks
            done, total = (sum(column) for column in zip(*seen.values(), strict=True)) if seen else (0, 0)
            self.report(what, done, total or None)

        handler: Any = heard
        spark.registerProgressHandler(handler)
        try:
            yield
        finally:
            spark.removeProgressHandler(handler)
            total = sum(tasks for _, tasks in seen.values())
            self.report(what, total, total or None)

    def _watch(self, tracker: "StatusTracker", group: str, what: str, ended: threading.Event) -> None:
        total = 0
        while not ended.wait(EVERY_S):
            done = total = 0
            for job in tracker.getJobIdsForGroup(group):
                facts = tracker.getJobInfo(job)
                stages = [tracker.getStageInfo(stage) for stage in facts.stageIds] if facts is not None else []
                known = [stage for stage in stages if stage is not None]
                done += sum(stage.numCompletedTasks for stage in known)
                total += sum(stage.numTasks for stage in known)
            self.report(what, done, total or None)
        self.report(what, total, total or None)
