"""What a RocketMQ broker that had the store last counts as through of its transactions (spec 1.4).

It passes over a half that was checked too often without an op record, so only its offsets tell. Its consumerOffset.json
is known by the check that it lacks: one of a slave, which may be ahead of its log, has it.
"""

from typing import Final

from towline.errors import MalformedFile
from towline.format.files.topics import loads_fastjson
from towline.format.record.forms import HALF_TOPIC, OP_TOPIC
from towline.format.record.transactions import TRANSACTION_GROUP
from towline.log.files.config_file import CHECK, ConfigFile
from towline.places import Store

from .retention_floor import GROUP_OFFSETS, HALF_FLOOR, LOG_END, OP_FLOOR, TRANSACTION_OFFSETS

_QUEUE: Final = "0"


def adopt_floors(store: Store, log_end: int) -> bool:
    """Whether transactions go on where the broker stood. Raises MalformedFile, StoreNotWritable, SyncFailed, DiskFull.

    Before anybody saves consumerOffset.json again, whose owner refuses it where nobody can read it.
    """
    path = store.config / GROUP_OFFSETS
    try:
        content = loads_fastjson(path.read_text(encoding="utf-8"), str(path))
    except (FileNotFoundError, MalformedFile, UnicodeDecodeError):
        return False
    if not isinstance(content, dict) or CHECK in content or not isinstance(content.get("offsetTable"), dict):
        return False
    table = content["offsetTable"]
    half, op = (_of(table.get(f"{topic}@{TRANSACTION_GROUP}")) for topic in (HALF_TOPIC, OP_TOPIC))
    file = ConfigFile(store.config / TRANSACTION_OFFSETS)
    if half <= (file.load() or {}).get(HALF_FLOOR, 0):
        return False
    file.save({HALF_FLOOR: half, OP_FLOOR: op, LOG_END: log_end})
    return True


def _of(queues: object) -> int:
    found = queues.get(_QUEUE, 0) if isinstance(queues, dict) else 0
    return found if type(found) is int else 0
