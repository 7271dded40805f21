"""Runs one job, for the command and for `python -m towline.pipeline` alike."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from towline.errors import MissingPackage, TowlineError
from towline.spark.errors import NotAStore

from . import registry
from .errors import IllegalOption, JobFailed
from .job import Job, Result, document_of
from .options import made
from .progress import Progress

_IN_WORDS_OF_JOBS: Final = ("onCorruption=skip", "--on-corruption skip")  # an option of the source, and of a job
_REPORT_EXTRA: Final = "drill"  # it brings matplotlib


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run gave, and how long it took, the start of Spark included."""

    name: str
    job: Job
    result: Result
    seconds: float

    def document(self) -> dict[str, Any]:
        return document_of(self.name, self.job, self.result, self.seconds)


def execute(
    name: str,
    values: Mapping[str, Any],
    *,
    master: str | None = None,
    conf: Sequence[str] = (),
    report: Path | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Runs a job with option values of a command line; `conf` are settings of Spark as KEY=VALUE.

    Everything that can be refused is refused before Spark starts. Raises UnknownJob, IllegalOption, MissingPackage,
    JavaMissing, IllegalMaster, NotAStore, SparkNotStarted, JobFailed, and what the job itself refuses.
    """
    job = registry.load(name)
    options = made(job.options, values)
    settings = dict(_setting(each) for each in conf)
    store = getattr(options, "store", None)
    if store is not None and not job.makes_store and not Path(store).is_dir():
        raise NotAStore(str(store), "there is no such directory")
    reports = _reports(report)
    begin = time.monotonic()
    result = _run(name, job, options, master, settings, progress or Progress())
    if report is not None:
        asked = {key: value for key, value in values.items() if value is not None}
        reports.render(name, job.columns, result, asked, report)
    return Outcome(name=name, job=job, result=result, seconds=time.monotonic() - begin)


def _run(
    name: str, job: Job, options: Any, master: str | None, settings: Mapping[str, str], progress: Progress
) -> Result:
    if not job.jvm:
        return job.run(None, options, progress)
    try:
        sessions = import_module("towline.pipeline.session")
    except ModuleNotFoundError as error:
        raise MissingPackage(error.name or "pyspark", "spark") from None
    with sessions.running(master, f"towline {name}", settings) as spark:
        try:
            return job.run(spark, options, progress)
        except TowlineError:
            raise
        except sessions.SPARK_ERRORS as error:
            said = sessions.sentence_of(error).replace(*_IN_WORDS_OF_JOBS)
            raise JobFailed(name, said, sessions.kept_log(error)) from error


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key.startswith("spark.") and equals):
        raise IllegalOption("conf", f"{text!r} is not spark.NAME=VALUE")
    return key, value


def _reports(report: Path | None) -> Any:
    """The module that draws, loaded before the work begins, so that nobody waits for a report that cannot be made."""
    if report is None:
        return None
    if not report.absolute().parent.is_dir():
        raise IllegalOption("report", f"the directory {report.absolute().parent} does not exist")
    try:
        return import_module("towline.pipeline.report")
    except ModuleNotFoundError as error:
        raise MissingPackage(error.name or "matplotlib", _REPORT_EXTRA) from None
