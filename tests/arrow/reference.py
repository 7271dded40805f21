"""What the columns of a record must be, from the plain decoder, one record at a time."""

from typing import Any

from towline.errors import MalformedRecord
from towline.format.java_hash import string_hash
from towline.format.record import blank, properties, record
from towline.format.record.compression import decompress
from towline.format.record.forms import SCHEDULE_TOPIC
from towline.format.record.record import Record

DELAYS_MS = (1_000, 5_000, 60_000)


def rows_of(log: bytes, base: int, start: int = 0, end: int | None = None) -> list[dict[str, Any]]:
    """A dictionary for each record that begins in [start, end), up to the blank, a zero or the first bad record."""
    at = start
    rows = []
    while at < (len(log) if end is None else end):
        if log[at : at + 4] == bytes(4) or log[at + 4 : at + 8] == blank.MAGIC.to_bytes(4, "big"):
            break
        try:
            found = record.decode(log, at, check_crc=False)
        except MalformedRecord:
            break
        if found.physical_offset != base + at:
            break
        size = int.from_bytes(log[at : at + 4], "big")
        rows.append(row_of(found, size, int.from_bytes(log[at + 8 : at + 12], "big")))
        at += size
    return rows


def row_of(found: Record, size: int, crc: int) -> dict[str, Any]:
    pairs = properties.decode(found.properties)
    topic = found.topic.decode("utf-8", "replace")
    return {
        "topic": topic,
        "queueId": found.queue_id,
        "queueOffset": found.queue_offset,
        "tags": pairs.get("TAGS"),
        "keys": pairs.get("KEYS"),
        "uniqKey": pairs.get("UNIQ_KEY"),
        "body": decompress(found.body, found.sys_flag),
        "properties": pairs,
        "flag": found.flag,
        "bornTimestamp": found.born_timestamp * 1000,
        "bornHost": str(found.born_host),
        "storeTimestamp": found.store_timestamp * 1000,
        "storeHost": str(found.store_host),
        "brokerName": "broker-a",
        "commitLogOffset": found.physical_offset,
        "size": size,
        "sysFlag": found.sys_flag,
        "bodyCRC": crc,
        "reconsumeTimes": found.reconsume_times,
        "preparedTransactionOffset": found.prepared_transaction_offset,
        "tagsCode": tags_code(topic, pairs, found.store_timestamp),
    }


def tags_code(topic: str, pairs: dict[str, str], store_timestamp: int) -> int:
    level = pairs.get("DELAY", "")
    if topic == SCHEDULE_TOPIC and level.isascii() and level.isdigit() and 0 < int(level) < 2**31:
        return store_timestamp + DELAYS_MS[min(int(level), len(DELAYS_MS)) - 1]
    return string_hash(pairs["TAGS"]) if "TAGS" in pairs else 0
