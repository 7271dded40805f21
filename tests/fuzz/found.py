"""Inputs that were defects once, and what becomes of them now."""

from typing import Final, NamedTuple

from towline.format.files.consume_queue import encode
from towline.format.record.transactions import HALF
from towline.format.remoting.command import Form

from .judging import ACCEPTED
from .targets.records import of
from .targets.remoting import FIELDS, frame, framed


class Found(NamedTuple):
    """What it was."""

    target: str
    what: str
    data: bytes
    outcome: str


DIGITS: Final = b"9" * 5_000

FOUND: Final = (
    Found("kernels.entries", "a position whose end is no number of 64 bits", encode(2**63 - 1, 256, 0), ACCEPTED),
    Found("remoting.stored", "a delay of 5,000 digits", b"T\x03DELAY\x01" + DIGITS + b"\x02", ACCEPTED),
    Found("wire.refusal", "a number of 5,000 digits", b"cause=lease a=" + DIGITS, ACCEPTED),
    Found("files.epochs", "a count of 5,000 digits", DIGITS + b"\n0\n", "MalformedFile"),
    Found("files.epochs", "an epoch of 5,000 digits", b"1\n0\n" + DIGITS + b"-0\n", "MalformedFile"),
    Found("files.topics", "a number beyond a double", b'{"topicConfigTable":{"T":{"perm":1e999}}}', "MalformedFile"),
    Found("files.offsets", "an infinite offset", b'{"offsetTable":{"T@g":{0:Infinity}}}', "MalformedFile"),
    Found("wire.offer", "a ring of an infinite process", b'{"pid":1e999,"ring":1,"bell":2,"token":3}', ACCEPTED),
    Found("wire.offer", "an offer of an infinite ring", b'{"put_ring":{"size":1e999}}', ACCEPTED),
    Found("remoting.fastjson", "keys in keys", b"{" * 31 + b'"a":1' + b"}:1" * 30 + b"}", "MalformedFrame"),
    Found("remoting.routes", "an infinite number",
          b'{"queueDatas":[{"brokerName":"a","readQueueNums":1e999}]}', "MalformedFrame"),
    Found("record.columns", "sizes of three bytes", b"\0\3abc", "MalformedRecord"),
    Found("record.bodies", "sizes of three bytes", b"\0\3abc", "MalformedRecord"),
    Found("wire.endpoint", "a port of 5,000 digits", b"tcp://h:" + DIGITS, "InvalidEndpoint"),
    Found("state.identity", "half of a pair",
          b'{"format_version":1,"cluster":"\\ud800","store_id":"' + b"ab" * 16 + b'"}',
          ACCEPTED),
    Found("state.identity", "a list of lists", b"[" * 2_000, "MalformedFile"),
    Found("files.fastjson", "objects in objects", b'{"a":' * 400 + b"1" + b"}" * 400, "MalformedFile"),
    Found("files.fastjson", "a queue of 5,000 digits", b'{"offsetTable":{"T@g":{' + DIGITS + b":1}}}", ACCEPTED),
    Found("state.truncation", "a check of what is too deep",
          b'{"towlineCheck":"0","a":' + b"[" * 400 + b"]" * 400 + b"}",
          "TruncationLost"),
    Found("record.transactions", "a half for queue 10**17",
          of(topic=HALF, properties=b"REAL_TOPIC\x01T\x02REAL_QID\x01" + b"9" * 17 + b"\x02"), ACCEPTED),
    Found("remoting.sent", "a topic that ends behind its record",
          b"\1" + of()[:92] + b"\xff" + of()[93:], "MalformedRecord"),
    Found("remoting.sent", "a topic that is no text", b"\1" + of(topic=b"\xff"), "MalformedRecord"),
    Found("remoting.sent", "a half without a queue", b"\1" + of(topic=HALF, properties=b"REAL_TOPIC\x01T\x02"),
          "MalformedRecord"),
    Found("remoting.heartbeat", "a model that is a list of lists",
          b'{"clientID":"c","consumerDataSet":[{"groupName":"g","messageModel":' + b"[" * 970 + b"]" * 970 + b"}]}",
          "MalformedFrame"),
    Found("remoting.headers", "a code that is a list of lists, shown by the words of its refusal",
          b"\0" + framed(bytes(8) + b'{"code":' + b"[" * 985 + b"]" * 985 + b"}"), "MalformedFrame"),
    Found("remoting.headers", "a remark that is a list of lists",
          b"\0" + framed(bytes(8) + b'{"code":310,"remark":' + b"[" * 985 + b"]" * 985 + b"}"), "MalformedFrame"),
    Found("kernels.sends", "a version that is text, which the interpreter alone refused",
          frame(Form.JSON, FIELDS | {"i": "UNIQ_KEY\x01" + "A" * 32}).replace(b'"version":409', b'"version":"9"'),
          ACCEPTED),
)  # fmt: skip
