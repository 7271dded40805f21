"""The end of the log as its one writer holds it: put on a master, the ha receiver on a slave.

Both resume at the published APPENDED and take their next segment from allocate, or make it themselves by the same
function when allocate is late or dead (H4).
"""

from towline.log.commit_log import LogTail
from towline.log.mapped_file import MappedFile
from towline.log.next_segment import ensure_segment
from towline.log.segment_files import segment_name
from towline.runtime.positions import Counter, Duty, Position

from .context import Node


def open_tail(node: Node, unpublished_max: int) -> LogTail:
    """A LogTail at APPENDED. `unpublished_max` bytes behind it, which a killed writer may have left, are zeroed (H1).

    A log without a segment begins wherever APPENDED is set to, which is how an empty slave joins in the middle.
    """
    size = node.settings.mapped_file_size_commit_log
    wanted = node.writer(Position.WANTED)
    ringer = node.ringer(Duty.ALLOCATE)
    line = node.line

    def next_segment(base: int) -> MappedFile:
        path = node.store.commitlog / segment_name(base)
        # What allocate has published is durable by name too; anything else is made, or synced, here (H4).
        late = node.positions.get(Position.ALLOCATED) < base + size
        if late and ensure_segment(node.store.commitlog, node.store.staging, base, size):
            line.count(Counter.FALLBACKS)
        segment = MappedFile.open(path, size, writable=True)
        if base > wanted.get():
            wanted.advance(base)
            ringer.ring()
        return segment

    position = node.positions.get(Position.APPENDED)
    tail = LogTail.open(node.store.commitlog, size, position, next_segment)
    tail.zero_after(position, unpublished_max)
    return tail
