"""The table of idempotent producers is what the log says, whatever its end."""

import random
from pathlib import Path

import pytest

from towline.format.record import property_crc, sequence
from towline.format.record.record import Host, Record, encode
from towline.format.record.sequence import Place
from towline.kernels.base.directory import QueueDirectory
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.dispatch import DispatchScan
from towline.log.files.segment_files import segment_name
from towline.master.put.producers import producer_of, recover_batch
from towline.master.put.sequences import PER_MS, Claim, Last, Repeat, Sequences, Verdict

SEGMENT = 256 << 10
NOW = 1_700_000_000_000
HOST = Host(bytes([10, 0, 0, 1]), 10911)
QUEUES = ((b"orders", 0), (b"orders", 1), (b"others", 0))
PRODUCERS = (7, 2**63 - 1, 12_345)


class Written:
    """A segment with batches of three producers and records of others between them."""

    def __init__(self, directory: Path, seed: int, *, crc: bool) -> None:
        self.chance, self.crc = random.Random(seed), crc
        self.data = bytearray()
        self.offsets = dict.fromkeys(QUEUES, 0)
        self.ends: list[tuple[int, Claim | None, int]] = []  # behind each batch; its claim and queue offset
        epochs = dict.fromkeys(PRODUCERS, (NOW - 1_000) * PER_MS)
        following: dict[tuple[int, int, tuple[bytes, int]], int] = {}
        while len(self.data) < SEGMENT // 3:
            queue, producer, count = (
                self.chance.choice(QUEUES),
                self.chance.choice(PRODUCERS),
                self.chance.randint(1, 5),
            )
            first, offset = len(self.data), self.offsets[queue]
            if self.chance.random() < 0.2:
                self.add(queue, b"KEYS\x01k\x02")
                self.ends.append((len(self.data), None, offset))
                continue
            if self.chance.random() < 0.1:
                epochs[producer] += PER_MS
            key = epochs[producer], producer, queue
            number = following.get(key, 0)
            for step in range(count):
                self.add(queue, b"KEYS\x01k\x02" + sequence.encode(Place(producer, epochs[producer], number + step)))
            following[key] = number + count
            claim = Claim(producer, epochs[producer], number, count, len(self.data) - first, queue)
            self.ends.append((len(self.data), claim, offset))
        (directory / segment_name(0)).write_bytes(bytes(self.data).ljust(SEGMENT, b"\0"))

    def add(self, queue: tuple[bytes, int], properties: bytes) -> None:
        made = Record(
            topic=queue[0],
            body=self.chance.randbytes(self.chance.randrange(200)),
            properties=property_crc.appended(properties) if self.crc else properties,
            queue_id=queue[1],
            queue_offset=self.offsets[queue],
            physical_offset=len(self.data),
            born_timestamp=NOW,
            store_timestamp=NOW,
            born_host=HOST,
            store_host=HOST,
        )
        self.offsets[queue] += 1
        self.data += encode(made)


def table_of(directory: Path, end: int) -> Sequences:
    log = CommitLogReader(directory, SEGMENT)
    log.load()
    known, queues = Sequences(1000, 1 << 40), QueueDirectory()
    for batch in DispatchScan(log, queues).whole(0, end):
        recover_batch(known, batch, queues)
    del batch
    log.close()
    return known


@pytest.mark.parametrize("crc", [False, True], ids=["without property CRCs", "with property CRCs"])
@pytest.mark.parametrize("seed", range(3))
def test_a_log_that_ends_behind_any_batch_makes_the_table_of_that_moment(tmp_path: Path, seed: int, crc: bool) -> None:
    written = Written(tmp_path, seed, crc=crc)
    assert len(written.ends) > 50
    kept = Sequences(1000, 1 << 40)
    for number, (end, claim, offset) in enumerate(written.ends):
        if claim is not None:
            kept.stored(claim, offset, end, NOW)
        if number % 29 and number < len(written.ends) - 1:
            continue
        known = table_of(tmp_path, end)
        assert known.states == kept.states
        for _, one, _ in written.ends:
            if one is not None:
                assert known.judge(one, NOW, NOW) == kept.judge(one, NOW, NOW)
                assert known.last(one) == kept.last(one)


def test_a_repeat_is_placed_by_its_own_size(tmp_path: Path) -> None:
    written = Written(tmp_path, 5, crc=True)
    end, claim, offset = [each for each in written.ends if each[1] is not None][-1]
    assert claim is not None
    known = table_of(tmp_path, len(written.data))
    assert known.judge(claim, NOW, NOW) == Repeat(offset, end - claim.size, end)
    assert known.last(claim) == Last(claim.last, offset + claim.records - 1, end)
    assert known.judge(claim._replace(first=claim.last + 1), NOW, NOW) is Verdict.NEW


@pytest.mark.parametrize(
    "properties",
    [
        b"a" + sequence.encode(Place(77, NOW * PER_MS, 4)),
        sequence.encode(Place(77, (NOW + 1) * PER_MS, 4)),
    ],
    ids=["of a longer name", "of an epoch after its record"],
)
def test_what_put_would_not_have_judged_is_nobodys_place(tmp_path: Path, properties: bytes) -> None:
    written = Written(tmp_path, 5, crc=False)
    known = table_of(tmp_path, len(written.data))
    written.add(QUEUES[0], properties)
    with (tmp_path / segment_name(0)).open("r+b") as file:
        file.write(written.data)
    again = table_of(tmp_path, len(written.data))
    assert again.epoch_of(77) is None
    assert again.states == known.states


def test_a_name_is_the_same_producer_everywhere() -> None:
    assert producer_of("billing") == 906_850_720_199_613_079
    assert len({producer_of(f"name {number}") for number in range(1000)}) == 1000
    assert all(0 <= producer_of(str(number)) <= sequence.PRODUCER_MAX for number in range(1000))
