"""What cleaning keeps until it is in an archive, where `keep_until_archived` is set."""

from typing import Final

from towline.errors import MalformedFile
from towline.log.commitlog.cleaning import Deletion
from towline.log.files.segment_files import segment_name
from towline.log.state.archived import NAME, archived_until
from towline.node.process.context import Node
from towline.runtime.positions import Counter

_UNREAD: Final = (0, 0)


class ArchiveKeeper:
    """`look` before a choice; then `keeps` says of each segment's base whether it has to stay."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._wanted = node.settings.keep_until_archived
        self._size = node.settings.mapped_file_size_commit_log
        self._seen = _UNREAD
        self._until = 0
        self._told = -1  # the segment of which it was logged last that it is kept

    def look(self) -> None:
        """Reads how far the archive has come, when the job has said so anew. A log is never cut under this process."""
        if not self._wanted:
            return
        path = self._node.store.config / NAME
        try:
            found = path.stat()
            seen = found.st_mtime_ns, found.st_ino
        except FileNotFoundError:  # nothing is archived, or the job is just replacing it
            seen = _UNREAD
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._until = archived_until(self._node.store, self._size)
        except MalformedFile as error:
            self._until = 0
            self._node.log.error("no segment counts as archived, all are kept until the disk is full: %s", error)

    def keeps(self, base: int) -> bool:
        """Also says so in the log, once for each segment."""
        if not self._waits(base):
            return False
        if base != self._told:
            self._node.log.warning(
                "segment %s is kept until it is archived (keep_until_archived), the archive ends at %d: run `towline "
                "pipeline archive`; only a full disk takes it before",
                segment_name(base),
                self._until,
            )
            self._told = base
        return True

    def count(self, chosen: list[Deletion]) -> None:
        """Says and counts what goes all the same."""
        lost = [doomed for doomed in chosen if self._waits(doomed.base)]
        for doomed in lost:
            told = "segment %s goes although it is in no archive: %s"
            self._node.log.error(told, segment_name(doomed.base), doomed.why.value)
        self._node.line.count(Counter.FALLBACKS, len(lost))

    def _waits(self, base: int) -> bool:
        return self._wanted and base + self._size > self._until
