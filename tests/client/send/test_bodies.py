"""Bodies of a bulk call: a list, rows of an array and an Arrow column become the same records."""

import numpy as np
import pyarrow as pa
import pytest

from tests.client.send.test_encoding import encoder
from towline.client.message import ReceivedMessage
from towline.client.send.bodies import Bodies
from towline.format.record import property_crc

EVEN = [b"%03d" % number * 7 for number in range(50)]
UNEVEN = [b"x" * number for number in range(50)]
MATRIX = np.frombuffer(b"".join(EVEN), dtype=np.uint8).reshape(50, 21)
STRUCTURED = np.dtype([("number", "<i4"), ("name", "S17")])


def records_of(bodies, **settings):
    """What the encoder makes of them, record by record."""
    data, first_key = encoder(**settings).encode_bodies(Bodies.of(bodies), 3, tags="a", flag=9)
    at, found = 0, []
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        record = bytes(data[at : at + size])
        found.append(ReceivedMessage(property_crc.filled(record) if settings.get("append_property_crc") else record))
        at += size
    assert found[0].unique_key == first_key
    for message in found:
        message.verify()
        assert (message.queue_id, message.flag, message.tags) == (3, 9, "a")
    assert len({message.unique_key for message in found}) == len(found)
    return [message.body for message in found]


@pytest.mark.parametrize("settings", [{}, {"store_host_ipv6": True}, {"append_property_crc": True}], ids=str)
@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (EVEN, EVEN),
        (tuple(UNEVEN), UNEVEN),
        ([b""] * 5, [b""] * 5),
        ([bytearray(b"a"), memoryview(b"bc")], [b"a", b"bc"]),
        (np.array([*UNEVEN, b"y\0"], dtype=object), [*UNEVEN, b"y\0"]),
        (MATRIX, EVEN),
        (MATRIX[::2], EVEN[::2]),
        (MATRIX[:, :5], [body[:5] for body in EVEN]),
        (MATRIX.reshape(-1).view("V21"), EVEN),
        (MATRIX.reshape(-1).view(STRUCTURED), EVEN),
        (pa.array(UNEVEN), UNEVEN),
        (pa.array(UNEVEN).slice(7, 20), UNEVEN[7:27]),
        (pa.array(UNEVEN, pa.large_binary()).slice(3), UNEVEN[3:]),
        (pa.array(EVEN, pa.binary(21)).slice(5, 9), EVEN[5:14]),
        (pa.array(["ä", "", "cd"]), ["ä".encode(), b"", b"cd"]),
        (pa.chunked_array([pa.array(UNEVEN[:9]), pa.array(UNEVEN[9:])]), UNEVEN),
        (pa.table({"body": EVEN})["body"], EVEN),
    ],
    ids=["even", "uneven", "empty", "buffers", "objects", "rows", "every second row", "columns of rows", "void",
         "structured", "arrow", "slice", "large", "fixed", "strings", "chunks", "table"],
)  # fmt: skip
def test_each_becomes_a_record_with_its_own_size_crc_and_key(given, wanted, settings):
    assert records_of(given, **settings) == wanted


def test_large_ones_are_compressed_from_a_column_too():
    bodies = [b"small", bytes(9_000), b"x"]
    assert records_of(pa.array(bodies)) == bodies


@pytest.mark.parametrize(
    "given", [[], pa.array([], pa.binary()), np.zeros((0, 5), np.uint8)], ids=["list", "arrow", "rows"]
)
def test_none_are_none(given):
    assert len(Bodies.of(given)) == 0


def test_a_cut_holds_what_a_slice_of_the_list_would():
    for given in (UNEVEN, pa.array(UNEVEN)):
        cut = Bodies.of(given).cut(10, 30).cut(5, 9)
        assert list(cut.items) == UNEVEN[15:19]
        assert cut.data.tobytes() == b"".join(UNEVEN[15:19])


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (b"one", "one bytes is not a sequence"),
        ("one", "one str is not a sequence"),
        (pa.array([b"a", None]), "1 of the bodies are null"),
        (pa.array([1, 2]), "a column of int64 holds no bodies"),
        (np.zeros(3), "an array of float64 in 1 dimensions holds no bodies"),
        (np.zeros((2, 2, 2), np.uint8), "uint8 in 3 dimensions"),
        (np.array([b"ab", b"c"]), "S2"),
    ],
    ids=["bytes", "str", "null", "numbers", "floats", "cube", "zero-padded"],
)
def test_what_holds_no_bodies_is_refused_by_name(given, named):
    with pytest.raises(ValueError, match=named):
        Bodies.of(given)
