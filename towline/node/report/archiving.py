"""How far the archive of a node's log has come: for status."""

from typing import Any

from towline.errors import MalformedFile
from towline.log.state.archived import archived_until, load_archived
from towline.node.process.context import Node
from towline.runtime.positions import Counter, Duty, Position


def archive_of(node: Node) -> dict[str, Any] | None:
    """Offsets and bytes; None where nothing was archived and nothing waits for it.

    until    every segment that ends there or before is archived
    waiting  bytes of full segments that are not
    deleted  segments that a full disk took in this start before they were archived
    """
    settings, positions = node.settings, node.positions
    size, archived, problem = settings.mapped_file_size_commit_log, None, ""
    until = 0
    try:
        archived = load_archived(node.store)
        until = archived_until(node.store, size)
    except MalformedFile as error:
        problem = str(error)
    if archived is None and not problem and not settings.keep_until_archived:
        return None
    full = positions.get(Position.APPENDED) // size * size
    return {
        "keep_until_archived": settings.keep_until_archived,
        "until": until,
        "waiting": max(0, full - max(until, positions.get(Position.LOG_MIN))),
        "archive": None if archived is None else archived.archive,
        "time_ms": None if archived is None else archived.time_ms,
        "deleted": positions.duty(Duty.ALLOCATE).counter(Counter.FALLBACKS),
        "problem": problem,
    }
