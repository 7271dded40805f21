"""Pulls of our own clients that remoting answers by itself, as it does those of RocketMQ's (`log_reads`)."""

from typing import TypeAlias

from towline.format.files.topics import TopicConfig
from towline.format.wire.frames import PULL_ANSWER, RECORDS_IN_FILE, Buffer, Kind, Pull
from towline.format.wire.status import GetStatus
from towline.link.log_files import STRETCH_MIN, FileRegion

from .log_reads import FoundPlace, LogReads
from .topics import TopicDesk

Part: TypeAlias = Buffer | FileRegion


class OwnPulls:
    """Answers as serve gives them: the records, sent from the files where they are many, or their place there for a
    client that reads them."""

    def __init__(self, topics: TopicDesk, log_reads: LogReads) -> None:
        self._topics, self._log_reads = topics, log_reads

    def answer(self, pull: Pull, *, sends_files: bool) -> list[Part] | None:
        """The parts of the answer, regions of files where the client's connection `sends_files`; None where it is
        serve's to answer."""
        if pull.codes or pull.expression:
            return None
        try:
            name = pull.topic.decode()
        except UnicodeDecodeError:
            return None
        if not _may_read(self._topics.find(name), pull.queue_id):
            return None
        place = self._log_reads.place(name, pull.queue_id, pull.offset, pull.max_count, pull.max_bytes)
        if place is None:
            return None
        if place.is_dense and place.total >= STRETCH_MIN:
            if pull.reads_files:
                stretch = self._log_reads.stretch(place)
                return _found(pull, place, stretch, RECORDS_IN_FILE) if stretch else None
            region = self._log_reads.region(place) if sends_files else None
            if region is not None:
                return _found(pull, place, region, 0)
        records = self._log_reads.records(place)
        return None if records is None else _found(pull, place, records, 0)


def _may_read(topic: TopicConfig | None, queue_id: int) -> bool:
    return topic is not None and topic.readable and 0 <= queue_id < topic.read_queue_nums


def _found(pull: Pull, place: FoundPlace, records: Part, flags: int) -> list[Part]:
    head = PULL_ANSWER.pack(
        Kind.PULL_ANSWER,
        GetStatus.FOUND,
        pull.queue_id,
        pull.request_id,
        place.count,
        place.following,
        place.low,
        place.end,
        flags,
    )
    return [head, place.sizes, records]
