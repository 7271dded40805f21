"""What the indexes of a segment answer. Each entry that is used is compared with the log first: an index is a hint.

An entry that was changed is named; one that is missing, as behind a crash, makes the answer slower and not another.
"""

import numpy as np

from towline.kafka.errors import MalformedBytes, Rule, in_file
from towline.kafka.format import batch, message_set, offset_index, time_index
from towline.kafka.format.batch import NONE
from towline.kafka.format.records import Bytes

from .files import INDEX, TIME_INDEX, SegmentFiles
from .rolling import OFFSETS_MAX
from .scan import Batches, scan


def place(segment: SegmentFiles, data: Bytes, offset: int) -> int:
    """A byte where a batch begins, at or before the one that has the offset. Raises MalformedLog."""
    path = segment.path(INDEX)
    if not path.exists():
        return 0
    offsets, positions = offset_index.decode(path.read_bytes(), segment.base)
    row = int(np.searchsorted(offsets, offset, "right")) - 1
    if row < 0:
        return 0
    error = misplaced(data, int(offsets[row]), int(positions[row]))
    if error is not None:
        raise in_file(str(path), error, row * offset_index.SIZE)
    return int(positions[row])


def last_place(segment: SegmentFiles, data: Bytes) -> int:
    """A byte near the end of the log where a batch begins. Raises MalformedLog."""
    return place(segment, data, segment.base + OFFSETS_MAX)


def earlier_end(segment: SegmentFiles, data: Bytes, timestamp: int) -> int:
    """An offset before which no record of the segment has this time (ms since 1970) or a later one.

    Raises MalformedLog where the entry of the time index that says so has not the time of its batch.
    """
    path = segment.path(TIME_INDEX)
    if not path.exists():
        return segment.base
    times, offsets = time_index.decode(path.read_bytes(), segment.base)
    row = int(np.searchsorted(times, timestamp, "left")) - 1
    if row < 0:
        return segment.base
    time, offset = int(times[row]), int(offsets[row])
    found = _from(segment, data, offset)
    if len(found) and found["magic"][0] == 0:
        return segment.base  # the time is not in the message: a broker had it from one that it made older
    actual = int(found["max_timestamp"][0]) if len(found) else NONE
    if not len(found) or actual != time:
        said = f"{time} for offset {offset}, whose batch has {actual}"
        raise in_file(str(path), MalformedBytes(Rule.INDEX_TIME, row * time_index.SIZE, said))
    return offset


def greatest_time(segment: SegmentFiles, data: Bytes) -> int:
    """Of all records of the segment, ms since 1970; -1 if none has a time. Raises MalformedLog."""
    begin = earlier_end(segment, data, np.iinfo(np.int64).max)
    return int(_from(segment, data, begin)["max_timestamp"].max(initial=NONE))


def misplaced(data: Bytes, offset: int, position: int) -> MalformedBytes | None:
    """What is wrong with an entry of an offset index, at its byte 0.

    Its batch begins there, at or before the offset. A broker before 4.0 that appended several batches together made one
    entry of the first one's position and the last one's offset. Whether the batch is whole is a matter of the log.
    """
    if not 0 <= position <= len(data) - message_set.SIZE_MIN:
        return MalformedBytes(Rule.INDEX_BEYOND, 0, f"offset {offset} at byte {position} of {len(data)}")
    if data[position + batch.MAGIC_AT] == batch.MAGIC:
        head = data[position : position + batch.SIZE].tobytes()
        begins = len(head) == batch.SIZE and 0 <= batch.decode(head).base_offset <= offset
    else:
        found = scan(data, position, _behind(data, position)).batches
        begins = len(found) > 0 and bool(found["base_offset"][0] <= offset)
    if begins:
        return None
    said = f"no batch with offset {offset} or one before begins at byte {position} of the log"
    return MalformedBytes(Rule.INDEX_PLACE, 0, said)


def _from(segment: SegmentFiles, data: Bytes, offset: int) -> Batches:
    """The batches from the one that has the offset on, as far as the log is whole."""
    at = place(segment, data, offset) if offset > segment.base else 0
    found = scan(data, at, base=segment.base).batches
    return found[found["last_offset"] >= offset]


def _behind(data: Bytes, position: int) -> int:
    """The byte behind the batch that begins there, if one does."""
    size_at = position + batch.LAYOUT.offset["batch_length"]
    size = int.from_bytes(data[size_at : position + batch.OVERHEAD].tobytes(), "big", signed=True)
    return min(len(data), position + max(size, 0) + batch.OVERHEAD)
