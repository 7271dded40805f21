"""What a producer is told of a put."""

from collections.abc import Sequence

from towline.format.record.message_id import encode_offset_id
from towline.format.record.properties import MSG_REGION, REGION_DEFAULT, TRACE_DEFAULT, TRACE_ON
from towline.format.record.record import Host
from towline.format.remoting.codes import ResponseCode, response_of
from towline.format.wire.frames import PutAnswer
from towline.format.wire.status import PutStatus


def outcome(found: PutAnswer | None) -> tuple[int, str]:
    """The code for what became of a put, and why it was not acknowledged."""
    if found is None:
        return ResponseCode.SYSTEM_ERROR, "put has ended; whether the message is stored is not known"
    status = PutStatus(found.status)
    code = response_of(status)
    if status.acknowledged:
        return code, ""
    why = f"{status.name}: {found.sentence}" if found.sentence else status.name
    if code == ResponseCode.SYSTEM_BUSY:
        why = f"[OVERLOAD]{why}"
    return code, why


def places_told(
    host: Host, found: PutAnswer, sizes: Sequence[int], queue_id: int, unique_key: str, recall: str = ""
) -> dict[str, str]:
    """The fields that say where records of these sizes stand; none for what was not stored."""
    if not found.places:
        return {}
    offset, place = found.places[0]
    ids = []
    for size in sizes:
        ids.append(encode_offset_id(host, place))
        place += size
    fields = {
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "msgId": ",".join(ids),
        MSG_REGION: REGION_DEFAULT,
        TRACE_ON: TRACE_DEFAULT,
        "transactionId": unique_key,
        "recallHandle": recall,
    }
    return {name: text for name, text in fields.items() if text}
