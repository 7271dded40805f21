"""A damaged message is read where it is whole, and only a copy of that very message takes its place."""

import numpy as np
import pytest

from tests.client.standin import Standin
from towline.client import kernels
from towline.client.body_crcs import body_crcs
from towline.client.columns import SIZES, Columns
from towline.client.kernels import load_kernels
from towline.client.read.checks import Checked, Checks, parsed, placed
from towline.format.record.record import LAYOUT, Record, encode

MADE = [
    encode(
        Record(topic=b"t", body=b"body %d" % number * 9, queue_offset=10 + 2 * number, physical_offset=1_000 * number)
    )
    for number in range(4)
]
BAD = 2


def flipped(record: bytes, at: int) -> bytes:
    return record[:at] + bytes([record[at] ^ 1]) + record[at + 1 :]


def sizes(records: list[bytes]) -> bytes:
    return np.array([len(record) for record in records], SIZES).tobytes()


def columns_of(records: list[bytes]) -> Columns:
    return Columns(sizes(records), b"".join(records), queue_id=0)


def damaged() -> Columns:
    return columns_of([*MADE[:BAD], flipped(MADE[BAD], LAYOUT.size), *MADE[BAD + 1 :]])


def checks(node: Standin) -> Checks:
    return Checks(lambda: (node.endpoint,), "test", "")


class TestPlaces:
    """MADE is what entries 10, 12, 14 and 16 of a queue lead to."""

    def test_records_of_the_entries_that_were_asked_for_are_let_through(self):
        found = Checked(columns_of(MADE))
        assert placed(found, "t", 10, 17, 10) is found

    @pytest.mark.parametrize(
        ("begins", "following", "sound", "due"),
        [(11, 17, 0, 11), (10, 16, 3, 15), (20, 30, 0, 20), (0, 10, 0, 0)],
        ids=["the first is older", "the last is newer", "all are older", "all are newer"],
    )
    def test_a_message_of_elsewhere_is_named_and_what_stands_before_it_kept(self, begins, following, sound, due):
        found = placed(Checked(columns_of(MADE)), "t", begins, following, begins)
        assert (0 if found.sound is None else len(found.sound)) == sound
        assert (found.damage.topic, found.damage.queue_id, found.damage.queue_offset) == ("t", 0, due)
        assert found.damage.record == MADE[sound]

    @pytest.mark.parametrize(
        "records", [[MADE[0], MADE[2], MADE[1]], [MADE[0], MADE[1], MADE[1]]], ids=["back", "twice"]
    )
    def test_messages_that_do_not_go_on_are_of_elsewhere(self, records):
        found = placed(Checked(columns_of(records)), "t", 10, 17, 10)
        assert len(found.sound) == 2
        assert found.damage.queue_offset == int(found.sound.queue_offset[-1]) + 1

    def test_what_was_given_before_is_none_of_elsewhere(self):
        found = Checked(columns_of(MADE))
        assert placed(found, "t", 10, 17, 14) is found


class TestCopies:
    def test_a_sound_copy_takes_the_place_of_the_damaged_record(self, node):
        node.extra = [MADE[BAD]]
        checked = checks(node).check(damaged(), "t")
        assert checked.damage is None
        assert bytes(checked.sound.records) == b"".join(MADE)

    def test_a_wrong_bodycrc_alone_is_mended_too(self, node):
        node.extra = [MADE[BAD]]
        wrong = [*MADE[:BAD], flipped(MADE[BAD], LAYOUT.offset["body_crc"] + 3), *MADE[BAD + 1 :]]
        assert bytes(checks(node).check(columns_of(wrong), "t").sound.records) == b"".join(MADE)

    @pytest.mark.parametrize(
        ("copy", "why"),
        [
            pytest.param(flipped(MADE[BAD], LAYOUT.size + 1), "damaged too", id="damaged as well"),
            pytest.param(MADE[BAD + 1], "another message", id="of another place"),
            pytest.param(
                encode(Record(topic=b"t", body=b"other" * 9, queue_offset=14, physical_offset=2_000)),
                "another message",
                id="of another length",
            ),
            pytest.param(flipped(MADE[BAD], len(MADE[BAD]) - 3), "another message", id="of another topic"),
        ],
    )
    def test_nothing_else_does(self, node, copy, why):
        node.extra = [copy]
        checked = checks(node).check(damaged(), "t")
        assert bytes(checked.sound.records) == b"".join(MADE[:BAD])
        assert checked.damage.queue_offset == 14
        assert checked.damage.physical_offset == 2_000
        assert why in checked.damage.problem
        assert node.endpoint in checked.damage.problem

    def test_of_the_first_message_nothing_is_left(self, node):
        records = [flipped(MADE[0], LAYOUT.size), *MADE[1:]]
        checked = checks(node).check(columns_of(records), "t")
        assert checked.sound is None
        assert checked.damage.record == records[0]


class TestHeads:
    @pytest.mark.parametrize("row", range(4))
    def test_what_cannot_be_parsed_is_named_and_the_rest_is_read(self, row):
        records = [*MADE[:row], flipped(MADE[row], LAYOUT.offset["magic"]), *MADE[row + 1 :]]
        found = parsed(sizes(records), b"".join(records), "t", 3, "b", 5)
        assert (0 if found.sound is None else len(found.sound)) == row
        assert found.damage.queue_offset == (9 + 2 * row if row else 5)
        assert (found.damage.topic, found.damage.queue_id, found.damage.broker_name) == ("t", 3, "b")
        assert found.damage.physical_offset == 1_000 * row
        assert found.damage.record == records[row]


class TestKernel:
    DATA = np.frombuffer(b"".join(MADE), np.uint8)
    STARTS, SIZES = np.array([0, 5, 9]), np.array([4, 60, 0])

    @pytest.fixture(autouse=True)
    def loaded(self, monkeypatch):
        """Of a process that has read nothing yet: how often the kernel was loaded."""
        asked: list[int] = []
        load = kernels._import
        monkeypatch.setattr(kernels, "_import", lambda: asked.append(1) or load())
        for name, value in (("kernels", None), ("asked", False), ("seconds", 0.0), ("since", 0.0)):
            monkeypatch.setattr(f"towline.client.kernels._Cost.{name}", value)
        return asked

    def found(self):
        return body_crcs(self.DATA, self.STARTS, self.SIZES).tolist()

    def test_who_reads_little_at_a_time_does_without(self, loaded, monkeypatch):
        monkeypatch.setattr(kernels, "WINDOW_S", 0.0)
        monkeypatch.setattr(kernels, "WORTH_S", 60.0)
        assert self.found() == self.found()
        assert not loaded

    def test_who_spends_as_much_as_it_costs_has_it_once(self, loaded, monkeypatch):
        before = self.found()
        assert not loaded
        monkeypatch.setattr(kernels, "WORTH_S", 0.0)
        assert [self.found() for _ in range(3)] == [before] * 3
        assert loaded == [1]

    def test_it_can_be_had_before(self, loaded):
        before = self.found()
        for _ in range(2):
            load_kernels()
        assert loaded == [1]
        assert self.found() == before
