"""RocketMQ's remoting: frames, headers, bodies, handles; and the wire between a master and its slaves."""

import contextlib
import json
import struct
from dataclasses import fields, is_dataclass
from typing import Any, Final, get_type_hints

from tests.fuzz.target import Grammar, Target, hold
from tests.fuzz.targets.records import PROPERTIES, of, records
from towline.errors import IllegalProperty, LinkRefused, MalformedFrame, MalformedRecord
from towline.format.record.blank import encode as encode_blank
from towline.format.record.forms import cancelling, delayed, half, timed
from towline.format.record.properties import encode as encode_properties
from towline.format.remoting import consumers, fastjson, headers, pops
from towline.format.remoting.admin_bodies import read_group_config, read_group_configs, read_topic_configs
from towline.format.remoting.batch import member, members_of
from towline.format.remoting.codes import RequestRefused
from towline.format.remoting.command import FRAME_MAX, Command, Form, decode, encode, frame_size
from towline.format.remoting.consumers import read_heartbeat, subscription_of
from towline.format.remoting.headers import SendMessage, read_header, write_header
from towline.format.remoting.pops import read_acks, read_handle
from towline.format.remoting.properties_text import properties_text, read_properties
from towline.format.remoting.routes import read_cluster, read_route
from towline.format.remoting.sent import Sendable, of_form, send_body, send_header, sendables
from towline.format.remoting.stored import BrokerFacts, RecallHandle, recalling, stored_message
from towline.ha.rocketmq.reports import newest
from towline.slave.rocketmq import files as rocketmq_files
from towline.slave.rocketmq.broker import content_of, ends_of
from towline.slave.rocketmq.frames import HEAD, READ_MAX, Frames

NOW: Final = 1_700_000_000_000
BROKER: Final = BrokerFacts("c1", 18, 259_200)
SEGMENT: Final = 1 << 20
START: Final = 3 * SEGMENT
FIELDS: Final = {
    "a": "pg", "b": "topic-A", "c": "TBW102", "d": "4", "e": "3", "f": "0", "g": str(NOW), "h": "-7",
    "i": PROPERTIES.decode(), "j": "0", "k": "false", "m": "false", "n": "broker-a",
}  # fmt: skip
KINDS: Final = tuple(
    kind
    for module in (headers, pops)
    for kind in vars(module).values()
    if is_dataclass(kind) and kind.__module__ == module.__name__
    if module is headers or "consumer_group" in kind.__dataclass_fields__
)
HEARTBEAT: Final = {
    "clientID": "c@1", "producerDataSet": [{"groupName": "pg"}],
    "consumerDataSet": [{
        "groupName": "g", "messageModel": "CLUSTERING", "consumeType": "CONSUME_PASSIVELY",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [{"topic": "T", "subString": "a || b", "expressionType": "TAG", "subVersion": 17}],
    }],
}  # fmt: skip
ACK: Final = {"c": "g", "t": "T", "r": "1", "so": 5, "q": 0, "rq": 1, "pt": NOW, "b": "BQ==", "it": 60_000}
ROUTE: Final = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"h:1"},"brokerName":"a"}],"queueDatas":'
    b'[{"brokerName":"a","perm":6,"readQueueNums":4,"writeQueueNums":4,"topicSysFlag":0}]}'
)
CLUSTER: Final = b'{"brokerAddrTable":{"a":{"brokerAddrs":{0:"h:1",1:"h:2"},"brokerName":"a","cluster":"c"}}}'
STATS: Final = b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:{"brokerOffset":5}}}'
PATH: Final = "a/file"
_FIELD_WORDS: Final = tuple(
    f"{name}\x01".encode()
    for name in ("DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TRAN_MSG", "PGROUP", "__RMQ.TRANSIENT.a")
)


def frame(form: Form, fields: dict[str, str] | None = None, body: bytes = b"body", code: int = 310) -> bytes:
    made = Command(code, 77, 0, "", FIELDS if fields is None else fields, body, form, 409)
    return b"".join(map(bytes, encode(made)))


def framed(data: bytes) -> bytes:
    """With the lengths that fit: what stands behind the first eight bytes is the header, the body is gone."""
    header = data[8:]
    if len(header) > 0xFF_FFFF:
        return data
    return struct.pack(">II", 4 + len(header), (data[4] % 2 if len(data) > 4 else 0) << 24 | len(header)) + header


def _command(data: bytes) -> object:
    size = frame_size(data)
    hold(size <= FRAME_MAX + 4, "a frame has at most FRAME_MAX bytes")
    found = decode(data)
    made = b"".join(map(bytes, encode(found)))
    again = decode(made)
    hold(again.fields == dict(found.fields) and bytes(again.body) == bytes(found.body), "fields and body are the same")
    numbers = (found.code, found.opaque, found.flag, found.remark, found.version)
    hold((again.code, again.opaque, again.flag, again.remark, again.version) == numbers, "and all else")
    return found.form, len(found.fields), found.is_answer, found.is_one_way


def _json_body(data: bytes) -> object:
    said = Command(34, body=data).json()
    return type(said).__name__


def _headers(data: bytes) -> object:
    """The first byte says whose fields are looked for."""
    kind = KINDS[data[0] % len(KINDS)] if data else KINDS[0]
    found = decode(data[1:])
    letters = kind is SendMessage and bool(found.code % 2)
    header = read_header(kind, found.fields, letters=letters)
    hold(read_header(kind, write_header(header, letters=letters), letters=letters) == header, "written as it was read")
    return kind.__name__


def fields_of(kind: type) -> list[str]:
    return [each.name for each in fields(kind)]


def _header_seeds() -> list[bytes]:
    """One of each kind, all fields there; and its fields as they may be left out."""
    found = [b"\0" + frame(Form.JSON)]
    for number, kind in enumerate(KINDS):
        hints = get_type_hints(kind)
        wire = write_header(kind(**{name: hints[name](1) for name in fields_of(kind)}))
        for form in Form:
            found.append(bytes([number]) + frame(form, wire, b"", 34))
    place = KINDS.index(SendMessage)
    return [*found, bytes([place]) + frame(Form.ROCKETMQ, code=311), bytes([place]) + frame(Form.JSON, code=311)]


def _framed_behind(data: bytes) -> bytes:
    return data[:1] + framed(data[1:])


def _stored(data: bytes) -> object:
    """The properties and topic of a send: what stands before the first 0x03 is the topic."""
    topic, _, text = data.partition(b"\x03")
    header = SendMessage(
        producer_group="pg", topic=topic.decode("utf-8", "replace"), queue_id=1, sys_flag=0, born_timestamp=NOW, flag=0,
        properties=text.decode("utf-8", "replace")[:16_000], reconsume_times=len(topic) % 20,
    )  # fmt: skip
    found = stored_message(header, 1, NOW, BROKER)
    hold(b"\0" not in found.properties, "no NUL byte is stored")
    return found.topic[:20] if found.topic in ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer") else found.deliver_at > 0


def _recall(data: bytes) -> object:
    text = data.decode("utf-8", "surrogateescape")
    found = RecallHandle.read(text)
    hold(RecallHandle.read(str(found)) == found, "a handle is written as it was read")
    recalling(found, BROKER)
    return True


def _batch(data: bytes) -> object:
    found = list(members_of(data))
    made = b"".join(member(each.flag, each.body, each.properties) for each in found)
    hold(list(members_of(made)) == found, "members are encoded as they were")
    return len(found)


def _handle(data: bytes) -> object:
    found = read_handle(data.decode("utf-8", "replace"))
    hold(read_handle(found.text(17)) == found, "a handle is written as it was read")
    return found.is_ordered


def _acks(data: bytes) -> object:
    found = read_acks(Command(0, body=data).json())
    return len(found), sum(len(each.offsets) for each in found) > 0


def _heartbeat(data: bytes) -> object:
    said = Command(34, body=data).json()
    found = read_heartbeat(said)
    hold(len(found.client_id) <= consumers.NAME_MAX, "a name has its limit")
    for each in said.get("consumerDataSet") or []:
        for row in each.get("subscriptionDataSet") or []:
            subscription_of(row)
    return len(found.consumers), len(found.producer_groups)


def _admin(data: bytes) -> object:
    said = Command(0, body=data).json()
    match said:
        case {"groupConfigList": _}:
            found: Any = read_group_configs(said)
        case {"topicConfigList": _}:
            found = read_topic_configs(said)
        case _:
            found = [read_group_config(said)]
    json.dumps([each[1] if isinstance(each, tuple) else each.topic for each in found])
    return len(found)


def _fastjson(data: bytes) -> object:
    said = fastjson.loads(data)
    return type(said).__name__, len(said) if isinstance(said, dict | list) else 0


def _routes(data: bytes) -> object:
    said = fastjson.loads(data)
    if isinstance(said, dict) and "brokerAddrTable" in said:
        return len(read_cluster(said))
    return len(read_route(said))


def _broker(data: bytes) -> object:
    """What a RocketMQ master tells its slaves."""
    answer = Command(0, body=data)
    told = content_of(answer)
    files = (rocketmq_files.topics_file(told), rocketmq_files.groups_file(told), rocketmq_files.offsets_file(told))
    more = (rocketmq_files.modes_file(told), rocketmq_files.delays_file(told), rocketmq_files.transactions_file(told))
    for content in (*files, *more):
        rocketmq_files.text_of(content)
    return ends_of(answer).end > 0


def _timers(data: bytes) -> object:
    return len(rocketmq_files.timers_file(data))


def _properties(data: bytes) -> object:
    found = read_properties(data)
    plain = {
        name: value
        for name, value in found.items()
        if name.isalnum() and value.isprintable() and value.strip() == value
    }
    hold(read_properties(properties_text(plain)) == plain, "what was read is written as it was")
    return len(found)


def _sent(data: bytes) -> object:
    """Records of our own clients on their way to a broker."""
    found = sendables(data[1:], data[0] % 4 if data else 0)
    made = [each for record in found if isinstance(each := of_form(record, "broker-a"), Sendable)]
    if made:
        with contextlib.suppress(UnicodeDecodeError):  # the properties of our own clients are text
            send_header(made, "pg", "broker-a")
        send_body(made)
    return len(found), len(made)


def _sends() -> list[bytes]:
    forms = (delayed("T", 1, 3), timed("T", 1, NOW), cancelling("T", 1, NOW, "AB"), half("T", 1, "pg"))
    rows = [
        of(topic=form.topic.encode(), queue_id=form.queue_id, properties=encode_properties(form.pairs))
        for form in forms
    ]
    return [b"\x01" + of(), b"\x02" + of() * 2, *(b"\x01" + row for row in rows)]


def _slices() -> list[bytes]:
    """A stream from START on: frames of a log that stands there."""
    log, at = b"", START
    for row in records()[:6]:
        log += row[:28] + at.to_bytes(8, "big") + row[36:]
        at = START + len(log)
    whole = HEAD.pack(START, len(log)) + log
    cut = HEAD.pack(START, 100) + log[:100] + HEAD.pack(START + 100, len(log) - 100) + log[100:]
    return [whole, cut, HEAD.pack(START, 0) + whole, HEAD.pack(START, 8) + encode_blank(SEGMENT)]


def _frames(data: bytes) -> object:
    """Comes in two pieces, of which the first byte says where the first one ends."""
    frames = Frames(START, SEGMENT)
    cut = data[0] * len(data) // 256 if data else 0
    handed = START
    for piece in (data[1 : 1 + cut], data[1 + cut :]):
        frames.take(memoryview(piece[:READ_MAX]))
        while True:
            offset, found = frames.whole()
            hold(offset == handed, "stretches stand one behind the other")
            if not len(found):
                break
            handed += len(found)
    hold(handed <= frames.end, "no more is handed on than has come")
    return handed > START, frames.is_inside


def _reports(data: bytes) -> object:
    found, carry = newest(data[:5], data[5:])
    hold(len(carry) < 8 and (found is None) == (len(data) < 8), "every whole report is read")
    return found is None


TARGETS: Final = (
    Target(
        name="remoting.command",
        covers=("towline.format.remoting.command:decode", "towline.format.remoting.command:frame_size"),
        seeds=lambda: [frame(form, fields, code=code) for form in Form for fields in (None, {}) for code in (310, -1)],
        run=_command, refusals=(MalformedFrame,), grammar=Grammar.JSON, mend=framed, weight=3,
    ),
    Target(
        name="remoting.json", covers=("towline.format.remoting.command:Command.json",),
        seeds=lambda: [json.dumps(HEARTBEAT).encode(), b"[NaN]", b'"\\u4e2d"'],
        run=_json_body, refusals=(MalformedFrame,), grammar=Grammar.JSON,
    ),
    Target(
        name="remoting.headers",
        covers=("towline.format.remoting.headers:read_header", "towline.format.remoting.command:decode"),
        seeds=_header_seeds, run=_headers, refusals=(MalformedFrame,), grammar=Grammar.JSON, mend=_framed_behind,
        weight=3,
    ),
    Target(
        name="remoting.stored", covers=("towline.format.remoting.stored:stored_message",),
        seeds=lambda: [
            b"T\x03" + PROPERTIES, b"T\x03DELAY\x013\x02", b"T\x03TIMER_DELAY_SEC\x015\x02",
            b"T\x03TRAN_MSG\x01true\x02", b"%RETRY%g\x03" + PROPERTIES, b"T\x03TIMER_DELIVER_MS\x011700000000500\x02",
        ],
        run=_stored, refusals=(RequestRefused,), grammar=Grammar.TEXT, words=_FIELD_WORDS, weight=2,
    ),
    Target(
        name="remoting.recall", covers=("towline.format.remoting.stored:RecallHandle.read",),
        seeds=lambda: [str(RecallHandle("T", "b", NOW, "AB")).encode(), b"djEgVCBiIDEgQQ=="],
        run=_recall, refusals=(RequestRefused,), size_max=400, words=(b"=", b"-", b"_", b"IA=="),
    ),
    Target(
        name="remoting.batch", covers=("towline.format.remoting.batch:members_of",),
        seeds=lambda: [member(7, b"first", b"TAGS\x01A") + member(-1, b"", b"") + member(0, b"x" * 99, PROPERTIES)],
        run=_batch, refusals=(MalformedFrame,), weight=2,
    ),
    Target(
        name="remoting.handle", covers=("towline.format.remoting.pops:read_handle",),
        seeds=lambda: [pops.Handle(1, NOW, 60_000, 999, "0", "broker-a", 3).text(5).encode(), b"1 2 3 4 0 b 6"],
        run=_handle, refusals=(MalformedFrame,), grammar=Grammar.TEXT, words=(b" ",),
    ),
    Target(
        name="remoting.acks", covers=("towline.format.remoting.pops:read_acks",),
        seeds=lambda: [json.dumps({"brokerName": "a", "acks": [ACK, ACK]}).encode()],
        run=_acks, refusals=(MalformedFrame,), grammar=Grammar.JSON, words=(b"////" * 300, b'"acks":'),
    ),
    Target(
        name="remoting.heartbeat",
        covers=(
            "towline.format.remoting.consumers:read_heartbeat", "towline.format.remoting.consumers:subscription_of",
        ),
        seeds=lambda: [json.dumps(HEARTBEAT).encode(), b'{"clientID":"c"}'],
        run=_heartbeat, refusals=(MalformedFrame,), grammar=Grammar.JSON,
    ),
    Target(
        name="remoting.admin_body",
        covers=(
            "towline.format.remoting.admin_bodies:read_group_config",
            "towline.format.remoting.admin_bodies:read_group_configs",
            "towline.format.remoting.admin_bodies:read_topic_configs",
        ),
        seeds=lambda: [
            b'{"groupName":"g","retryMaxTimes":3,"attributes":{"a":"b"}}', b'{"groupConfigList":[{"groupName":"g"}]}',
            b'{"topicConfigList":[{"topicName":"T","readQueueNums":4,"writeQueueNums":4,"perm":6}]}',
        ],
        run=_admin, refusals=(MalformedFrame,), grammar=Grammar.JSON,
    ),
    Target(
        name="remoting.fastjson", covers=("towline.format.remoting.fastjson:loads",),
        seeds=lambda: [ROUTE, CLUSTER, STATS, b'{{{"a":1}:2}:3}', b"[1,{2:3}]"],
        run=_fastjson, refusals=(MalformedFrame,), grammar=Grammar.JSON, words=(b"{", b"}:1}", b"0:", b'{{"a":1}:{}}'),
        weight=2,
    ),
    Target(
        name="remoting.routes",
        covers=("towline.format.remoting.routes:read_route", "towline.format.remoting.routes:read_cluster"),
        seeds=lambda: [ROUTE, CLUSTER], run=_routes, refusals=(MalformedFrame,), grammar=Grammar.JSON,
    ),
    Target(
        name="remoting.master",
        covers=("towline.slave.rocketmq.broker:content_of", "towline.slave.rocketmq.broker:ends_of"),
        seeds=lambda: [
            b'{"table":{"commitLogMinOffset":"0","commitLogMaxOffset":"99"},"dataVersion":{"counter":1},"topicConfigTable":{},'
            b'"offsetTable":{"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:5}},"messageRequestModeMap":{}}'
        ],
        run=_broker, refusals=(LinkRefused, MalformedFrame), grammar=Grammar.JSON,
    ),
    Target(
        name="remoting.timers", covers=("towline.slave.rocketmq.files:timers_file",),
        seeds=lambda: [struct.pack(">7q", NOW, 1, 2, 3, 4, 5, 6)], run=_timers, refusals=(MalformedFrame,), size_max=80,
        weight=0.3,
    ),
    Target(
        name="remoting.properties", covers=("towline.format.remoting.properties_text:read_properties",),
        seeds=lambda: [properties_text({"brokerName": "a", "x": "a\\b\nc"}), b"# c\n! d\n\na = b\n"],
        run=_properties, refusals=(MalformedFrame,), grammar=Grammar.TEXT,
        words=(b"\\", b"\n", b"=", b"\r", b"\\u0041"),
    ),
    Target(
        name="remoting.sent",
        covers=("towline.format.remoting.sent:sendables", "towline.format.remoting.sent:of_form"),
        seeds=_sends, run=_sent, refusals=(MalformedRecord, IllegalProperty), grammar=Grammar.TEXT,
    ),
    Target(
        name="slave.frames",
        covers=("towline.slave.rocketmq.frames:Frames.take", "towline.slave.rocketmq.frames:Frames.whole"),
        seeds=lambda: [bytes([cut]) + each for each in _slices() for cut in (0, 99, 200)],
        run=_frames, refusals=(LinkRefused,), weight=0.5,
    ),
    Target(
        name="ha.reports", covers=("towline.ha.rocketmq.reports:newest",),
        seeds=lambda: [bytes(8), bytes(range(29))], run=_reports, size_max=128, weight=0.3,
    ),
)  # fmt: skip
