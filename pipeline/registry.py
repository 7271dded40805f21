"""The jobs by name. A job's module, and what it imports, is loaded when the job is asked for."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Final

from towline.errors import MissingPackage

from .errors import UnknownJob
from .job import Job


@dataclass(frozen=True, slots=True)
class Entry:
    """`module` has the job as `JOB`; `summary` is one line for people; `extra` brings the packages that it imports."""

    module: str
    summary: str
    extra: str = "spark"


JOBS: Final[Mapping[str, Entry]] = MappingProxyType(
    {
        "archive": Entry(
            "towline.pipeline.archive", "Full segments to Parquet by topic and day, checked; cleaning may wait for it."
        ),
        "compact": Entry(
            "towline.pipeline.compact", "The newest message of each key of a topic, to Parquet or into a topic."
        ),
        "export": Entry("towline.pipeline.export", "Messages of a store or an archive as JSON lines, CSV or Parquet."),
        "kafka-export": Entry(
            "towline.pipeline.kafka_export",
            "Topics of a store as Kafka's partitions, one task a queue, each compared.",
            "spark,kafka",
        ),
        "kafka-import": Entry(
            "towline.pipeline.kafka_import",
            "Topics of a stopped Kafka broker into a store, all checked or none.",
            "spark,kafka",
        ),
        "lag": Entry("towline.pipeline.lag", "How far every consumer group is behind, in messages and in time."),
        "lookup": Entry(
            "towline.pipeline.lookup", "Find the messages of many keys at once, by the index or by a scan."
        ),
        "rebuild": Entry("towline.pipeline.rebuild", "Queues and index anew from the log, by many tasks at once."),
        "replay": Entry(
            "towline.pipeline.replay", "A topic and time range of a store into a topic of a node, each message once."
        ),
        "restore": Entry(
            "towline.pipeline.restore",
            "A topic and time range of an archive into a topic of a node, each message once.",
        ),
        "stats": Entry(
            "towline.pipeline.stats", "Counts, sizes, delays, retries and top keys by topic, queue and minute."
        ),
        "verify": Entry(
            "towline.pipeline.verify", "Every file of a store, by segment; its log against another store's."
        ),
    }
)


def load(name: str) -> Job:
    """Raises UnknownJob with the nearest name, MissingPackage."""
    entry = JOBS.get(name)
    if entry is None:
        raise UnknownJob(
            name, max(JOBS, default="", key=lambda known: difflib.SequenceMatcher(None, name, known).ratio())
        )
    try:
        job = import_module(entry.module).JOB
    except ModuleNotFoundError as error:
        raise MissingPackage(error.name or entry.module, entry.extra) from None
    assert isinstance(job, Job)
    return job
