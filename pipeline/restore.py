"""`restore`: messages of a topic and time range of an archive into a topic of a running node. See `replay`."""

from dataclasses import dataclass
from typing import Any, Final

from .job import Job, Result
from .options import option
from .progress import Progress
from .replay import COLUMNS, CopyOptions, check_attempts, copy, from_either, result_of, source_of_archive
from .tasks import SparkTasks


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions(CopyOptions):
    archive: str = option("Archive that `archive` made.", metavar="DIR|URI")


def run(spark: Any, options: RestoreOptions, progress: Progress) -> Result:
    check_attempts(spark)
    chosen = from_either(options, archive=options.archive)
    tasks = SparkTasks(spark, progress)
    return result_of(copy(options, chosen, source_of_archive(options.archive), tasks), options)


JOB: Final = Job(options=RestoreOptions, columns=COLUMNS, run=run)
