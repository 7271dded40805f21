"""For the same messages both write the same log, the same queues and the same index, times left aside."""

import base64
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.format.record.hash_map import java_hash_map_order
from towline.format.java_hash import index_hash
from towline.format.record import blank, properties
from towline.format.record.record import decode, layout_of
from towline.limits import KIB

from .checks import mixture
from .jvm import RealStore
from .model import NOON, Mixture, Sent
from .releases import NEW, OLD, RELEASES
from .towlines import INDEXES, REAL_SETTINGS, SLOTS, TowlineStore, encoded

SEGMENT = 256 * KIB
COUNT = 900
HEADER, ENTRY = 40, 20
INDEX_ENTRY = np.dtype([("hash", ">i4"), ("physical_offset", ">i8"), ("time_diff", ">i4"), ("previous", ">i4")])
DIGITS = 10


def filling_segments(messages: Mixture, count: int, **more: bool) -> list[tuple[Sent, bytes]]:
    """Messages with their records. Segments end in turn with a record that just fits, and with one that just does not.

    `more` goes to the encoder.
    """
    made: list[tuple[Sent, bytes]] = []
    end = ends = 0
    while len(made) < count:
        message = messages.one()
        record = encoded(message, **more)
        room = SEGMENT - end % SEGMENT
        if blank.fits(len(record), room) and room < 60 * KIB:
            short = encoded(replace(message, body=b"", compression=None), **more)
            size = room - blank.SIZE + ends % 2 - len(short)
            if size >= 0:
                ends += 1
                message = replace(message, body=b"\xa5" * size, compression=None)
                record = encoded(message, **more)
        if not blank.fits(len(record), room):
            end += room
        made.append((message, record))
        end += len(record)
    assert ends > 2
    return made


def spec_of(message: Sent, record: bytes, store_host: str) -> dict[str, Any]:
    """The same record for the real store, its properties as they stand in ours."""
    decoded = decode(record, check_crc=False)
    return {
        **message.spec(store_host),
        "store_port": 0,
        "body": base64.b64encode(decoded.body).decode(),
        "sys_flag": decoded.sys_flag,
        "compression": None,
        "raw_properties": properties.encode(message.properties.items()).decode(),
        "born_timestamp": NOON,
    }


def log_of(root: Path, records: list[bytes], offsets: list[int], crc: bool) -> bytes:
    """The log's bytes, with zeros where store timestamps stand, and the digits that depend on them."""
    data = bytearray(b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir())))
    for at, record in zip(offsets, records, strict=True):
        sys_flag = int.from_bytes(record[36:40], "big")
        time_at = at + layout_of(sys_flag).offset["store_timestamp"]
        assert any(data[time_at : time_at + 8])
        data[time_at : time_at + 8] = bytes(8)
        if crc:
            last = at + len(record)
            data[last - DIGITS - 1 : last - 1] = bytes(DIGITS)
    return bytes(data)


def queues_of(root: Path) -> dict[str, bytes]:
    directory = root / "consumequeue"
    return {str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*/*/*"))}


def index_of(root: Path) -> list[tuple[bytes, list[int], list[tuple[int, int, int]]]]:
    """File by file: offsets and counts of the header, the slots, the entries without their times."""
    found = []
    for path in sorted((root / "index").iterdir()):
        data = path.read_bytes()
        assert len(data) == HEADER + 4 * SLOTS + ENTRY * INDEXES
        slots = np.frombuffer(data, ">i4", SLOTS, HEADER).tolist()
        entries = np.frombuffer(data, INDEX_ENTRY, INDEXES, HEADER + 4 * SLOTS)
        found.append((data[16:HEADER], slots, entries[["hash", "physical_offset", "previous"]].tolist()))
    return found


def check_indexes(ours: Path, theirs: Path, made: list[tuple[Sent, int]]) -> None:
    """The same; or that of RocketMQ since 5.4, which indexes tags, too, under keys of their own."""
    mine, real = index_of(ours), index_of(theirs)
    assert len(mine) > 1
    if mine == real:
        return
    tagged = Counter(
        (index_hash(f"{message.topic}#T#{message.tags}"), at) for message, at in made if message.tags is not None
    )
    entries = [Counter(entry[:2] for _, _, each in files for entry in each if entry[0]) for files in (mine, real)]
    assert entries[1] - entries[0] == tagged
    assert not entries[0] - entries[1]


@pytest.mark.parametrize(
    ("release", "store_host", "crc"),
    [(OLD, "10.0.0.1", False), (OLD, "2001:db8::1", False), (NEW, "10.0.0.1", False), (NEW, "2001:db8::1", True)],
    ids=["4.9.8", "4.9.8-ipv6", "5.5.0", "5.5.0-ipv6-crc"],
)
def test_both_write_the_same_files(release, store_host, crc, jvms, tmp_path):
    more = {"store_host_ipv6": ":" in store_host, "append_property_crc": crc}
    made = filling_segments(mixture(3, release), COUNT, **more)
    records = [record for _, record in made]

    sizes = {"mappedFileSizeCommitLog": SEGMENT, "enabledAppendPropCRC": crc}
    real = RealStore(jvms(release), tmp_path / "real", **{**REAL_SETTINGS, **sizes})
    real.open()
    results = real.put([spec_of(message, record, store_host) for message, record in made])
    real.close()

    settings = {"mapped_file_size_commit_log": SEGMENT, "broker_ip1": store_host}
    if crc:
        settings["enabled_append_prop_crc"] = "true"
    towline = TowlineStore(tmp_path / "towline", **settings)
    try:
        with towline.running():
            towline.send_one_by_one([(message.topic, message.queue_id, record) for message, record in made])
            towline.await_dispatched()
    finally:
        towline.end()

    offsets = [result["physical_offset"] for result in results]
    assert offsets[-1] > 3 * SEGMENT
    ours, theirs = (log_of(root, records, offsets, crc) for root in (towline.root, real.root))
    assert len(ours) == len(theirs)
    assert ours == theirs, f"the logs differ at {next(at for at in range(len(ours)) if ours[at] != theirs[at])}"
    assert queues_of(towline.root) == queues_of(real.root)
    check_indexes(towline.root, real.root, [(message, at) for (message, _), at in zip(made, offsets, strict=True)])


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_both_write_and_read_properties_alike(release, jvms):
    """Their order is that of a HashMap in Java; the last separator came and went with the releases."""
    pairs = [message.properties for message in mixture(4, release).take(200)]
    pairs += [{f"name{number}": "x" for number in range(count)} for count in (11, 12, 13, 96, 97, 200)]
    ours = [properties.encode(each.items()).decode() for each in pairs]
    odd = ["a\x01b", "\x01b\x02", "a\x01\x02", "ab\x02", "a\x01b\x02a\x01c\x02", ""]
    answer = jvms(release).ask(op="properties", texts=[*ours, *odd])
    read = [properties.decode(text.encode()) for text in [*ours, *odd]]
    assert answer["read"] == read
    with_mark = "a\x01b\x01c\x02"  # which no client of ours writes
    assert jvms(release).ask(op="properties", texts=[with_mark])["read"] == [properties.decode(with_mark.encode())]
    capacity = 128 if release is NEW else 16
    ordered = [properties.encode(java_hash_map_order(each.items(), capacity)).decode() for each in read]
    assert [text.removesuffix("\x02") for text in answer["written"]] == [text.removesuffix("\x02") for text in ordered]
    last = {text[-1] == "\x02" for text in answer["written"] if text}
    assert last == {release is NEW}
