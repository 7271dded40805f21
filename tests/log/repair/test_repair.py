"""Repair: what it does and keeps, what it refuses, and that a kill in the middle does no harm."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.log.sound import copy_of, look, mend_all, plan_of, rules, sound_store, state_files
from tests.log.stores import NOON, QUEUE_FILE, SEGMENT, SETTINGS, Stored, StoreMaker, open_index
from towline.errors import TowlineError
from towline.format.files.consume_queue import FILLER_RECORD_SIZE, encode
from towline.format.record import blank, record, skipped
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.errors import RepairRefused
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.recovery.recovery import recover
from towline.log.repair.repair import Repair
from towline.log.repair.repair_plan import make_plan
from towline.log.repair.verify_report import Weight

from .test_verify import FAULTS, Fault, a_body, the_first_segment


def everything(maker: StoreMaker) -> dict[str, bytes]:
    return {str(path.relative_to(maker.root)): path.read_bytes() for path in maker.root.rglob("*") if path.is_file()}


def numbers(maker: StoreMaker, topic: str, queue_id: int) -> list[int | None]:
    """Log offset of each number of a queue; None for a hole."""
    files = ConsumeQueueFiles(maker.store.consumequeue, QUEUE_FILE, 8)
    found: list[int | None] = []
    while len(entries := files.read(topic, queue_id, len(found), 100)):
        found += [
            None if entry["record_size"] == FILLER_RECORD_SIZE else int(entry["physical_offset"]) for entry in entries
        ]
    files.close()
    return found


def of_queue(maker: StoreMaker, lost: set[int], topic: str, queue_id: int) -> list[int | None]:
    """The model: every record of the queue, None for those that were lost."""
    return [
        None if number in lost else stored.at
        for number, stored in enumerate(maker.records)
        if (stored.topic, stored.queue_id) == (topic, queue_id)
    ]


QUEUES = [(topic, queue_id) for topic in ("TopicA", "TopicB") for queue_id in (0, 1)]


# --- damaged stretches: what to do to the store; the numbers of the records lost


def one_record(maker: StoreMaker) -> set[int]:
    maker.write(maker.records[100].at + 300, b"\xff")
    return {100}


def several_in_a_row(maker: StoreMaker) -> set[int]:
    maker.write(maker.records[100].at + 30, bytes(3 * 507))
    return {100, 101, 102, 103}


def the_first_of_the_log(maker: StoreMaker) -> set[int]:
    maker.write(0, b"\xff" * 90)
    return {0}


def the_last_before_a_blank(maker: StoreMaker) -> set[int]:
    number = max(number for number, stored in enumerate(maker.records) if stored.at < SEGMENT)
    maker.write(maker.records[number].at + 300, b"\xff")
    return {number}


def a_record_and_its_blank(maker: StoreMaker) -> set[int]:
    number = max(number for number, stored in enumerate(maker.records) if stored.at < SEGMENT)
    at = maker.records[number].at
    maker.write(at, bytes(SEGMENT - at))
    return {number}


def a_blank_alone(maker: StoreMaker) -> set[int]:
    maker.write(maker.blanks[0], b"\xff" * 8)
    return set()


def the_last_of_the_log(maker: StoreMaker) -> set[int]:
    maker.write(maker.records[-1].at + 3, b"\xff" * 90)
    return {len(maker.records) - 1}


def a_whole_page(maker: StoreMaker) -> set[int]:
    maker.write(8192, bytes(4096))
    return {number for number, stored in enumerate(maker.records) if stored.at < 12288 and stored.end > 8192}


STRETCHES: list[Callable[[StoreMaker], set[int]]] = [
    one_record,
    several_in_a_row,
    the_first_of_the_log,
    the_last_before_a_blank,
    a_record_and_its_blank,
    a_blank_alone,
    the_last_of_the_log,
    a_whole_page,
]


@pytest.mark.parametrize("damage", STRETCHES, ids=lambda damage: damage.__name__)
class TestSteppingOver:
    def test_loses_what_was_damaged_and_nothing_else(
        self, maker: StoreMaker, damage: Callable[[StoreMaker], set[int]]
    ) -> None:
        lost = damage(maker)
        start, end = next((one.start, one.end) for one in look(maker).log.damages)
        before = maker.log_bytes()
        (step, *_) = mend_all(maker, start)
        assert step.action == "skip"
        assert look(maker).weight == 0, look(maker).findings.rows
        assert Path(step.kept).read_bytes() == before[start:end]
        after = maker.log_bytes()
        kept = [stored for number, stored in enumerate(maker.records) if number not in lost]
        assert all(after[stored.at : stored.end] == stored.data for stored in kept)
        for topic, queue_id in QUEUES:
            assert numbers(maker, topic, queue_id) == of_queue(maker, lost, topic, queue_id)
        index = open_index(maker.store, writable=False)
        for number, stored in enumerate(maker.records):
            found = index.query(stored.topic, f"k{number}", 0, 1 << 60)
            assert (stored.at in found) is (number not in lost)
        index.close()

    def test_leaves_a_log_that_a_start_derives_again_with_the_same_queues(
        self, maker: StoreMaker, damage: Callable[[StoreMaker], set[int]]
    ) -> None:
        lost = damage(maker)
        mend_all(maker, look(maker).log.damages[0].start)
        assert recover(maker.store, SETTINGS).cut_bytes == 0
        reader = CommitLogReader(maker.store.commitlog, SEGMENT)
        reader.load()
        walked = [at for at in _records(reader, maker.end) if at is not None]
        assert walked == [one.at for number, one in enumerate(maker.records) if number not in lost]
        reader.close()

    def test_is_refused_without_the_offset_and_changes_nothing(
        self, maker: StoreMaker, damage: Callable[[StoreMaker], set[int]]
    ) -> None:
        damage(maker)
        start = look(maker).log.damages[0].start
        before = everything(maker)
        with pytest.raises(RepairRefused, match=f"repair --yes --skip {start}`") as refusal:
            mend_all(maker)
        assert (refusal.value.path, refusal.value.at) == (str(maker.path(start)), start % SEGMENT)
        with pytest.raises(RepairRefused):
            mend_all(maker, start + 1)
        assert everything(maker) == before


def _records(reader: CommitLogReader, end: int) -> list[int | None]:
    """Where records begin, as a plain reader walks that knows sizes and blanks alone; None where one was skipped."""
    found: list[int | None] = []
    at = 0
    while at < end:
        head = bytes(reader.slice(at, at + record.LAYOUT.size))
        size = int.from_bytes(head[:4], "big")
        if size == 0:
            break
        if int.from_bytes(head[4:8], "big") == blank.MAGIC:
            at += SEGMENT - at % SEGMENT
            continue
        whole = bytes(reader.record(at, end))
        decoded = record.decode(whole)
        assert decoded.physical_offset == at
        transaction = decoded.sys_flag & record.TRANSACTION_MASK
        found.append(None if transaction == record.TRANSACTION_ROLLBACK else at)
        at += size
    return found


class TestSteppingOverMore:
    def test_two_stretches_at_once(self, maker: StoreMaker) -> None:
        for number in (50, 200):
            maker.write(maker.records[number].at + 300, b"\xff")
        mend_all(maker, maker.records[50].at, maker.records[200].at)
        assert look(maker).weight == 0
        for topic, queue_id in QUEUES:
            assert numbers(maker, topic, queue_id) == of_queue(maker, {50, 200}, topic, queue_id)

    def test_without_the_old_queues_later_records_say_what_is_lost(self, maker: StoreMaker) -> None:
        maker.write(maker.records[100].at + 30, bytes(3 * 507))
        for path in sorted(maker.store.consumequeue.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        mend_all(maker, maker.records[100].at)
        assert look(maker).weight == 0
        for topic, queue_id in QUEUES:
            assert numbers(maker, topic, queue_id) == of_queue(maker, {100, 101, 102, 103}, topic, queue_id)

    def test_units_that_no_entry_leads_to_any_more_are_put_aside(self, maker: StoreMaker) -> None:
        unit = maker.store.consumequeue_ext / "TopicA" / "0" / f"{0:020}"
        unit.parent.mkdir(parents=True)
        unit.write_bytes(b"unit")
        maker.write(maker.records[100].at + 30, bytes(507))
        mend_all(maker, maker.records[100].at)
        assert not maker.store.consumequeue_ext.exists()
        (kept,) = (maker.store.root / "diverged").glob("consumequeue_ext-*/TopicA/0/*")
        assert kept.read_bytes() == b"unit"
        assert look(maker).weight == 0

    def test_the_numbers_of_the_newest_lost_message_are_not_given_again(self, maker: StoreMaker) -> None:
        last = maker.records[-1]
        maker.write(last.at + 3, b"\xff" * 90)
        mend_all(maker, last.at)
        recovered = recover(maker.store, SETTINGS)
        ends = {(queue.topic, queue.queue_id): queue.end_offset for queue in recovered.queues}
        assert ends[last.topic, last.queue_id] == last.queue_offset + 1

    def test_a_queue_that_ends_in_a_hole_is_named_until_a_message_follows(self, maker: StoreMaker) -> None:
        """A real broker would take the filler for the end of what it dispatched."""
        last = maker.records[-1]
        maker.write(last.at + 3, b"\xff" * 90)
        plan = plan_of(maker, last.at)
        assert [note for note in plan.notes if "put one message" in note] == [
            f"queue {last.queue_id} of {last.topic} will end in a hole: "
            "put one message into the queue before a real broker gets the store"
        ]
        Repair(maker.store, SETTINGS, plan).run()
        (told,) = look(maker).findings.of("QUEUE_ENDS_IN_HOLE")
        at = last.queue_offset * 20
        path = maker.store.consumequeue / last.topic / str(last.queue_id) / f"{at - at % QUEUE_FILE:020d}"
        assert (maker.root / told.path, told.at, told.weight) == (path, at % QUEUE_FILE, Weight.NOTE)
        assert "put one message" in told.remedy
        maker.end = look(maker).log.end
        stored = maker.append(bytes(400), last.topic, last.queue_id)
        files = ConsumeQueueFiles(maker.store.consumequeue, QUEUE_FILE, 8)
        files.write(last.topic, last.queue_id, stored.queue_offset, encode(stored.at, len(stored.data), 0))
        files.close()
        assert look(maker).findings.of("QUEUE_ENDS_IN_HOLE") == []

    def test_a_hole_before_other_messages_is_not_named(self, maker: StoreMaker) -> None:
        maker.write(maker.records[100].at + 300, b"\xff")
        plan = plan_of(maker, maker.records[100].at)
        assert plan.notes == []
        Repair(maker.store, SETTINGS, plan).run()
        assert look(maker).findings.of("QUEUE_ENDS_IN_HOLE") == []

    def test_a_stretch_of_megabytes_takes_several_records(self, tmp_path: Path) -> None:
        big = replace(SETTINGS, segment_size=16 << 20)
        maker = _Big(tmp_path)
        for number in range(4):
            maker.append(bytes([number + 1]) * (3 << 20))
        maker.durable(maker.end)
        stored = maker.records[1]
        maker.write(stored.at, b"\xff" * (6 << 20))
        plan = make_plan(maker.store, big, [stored.at])
        assert [lost.count for _, lost in plan.stretches[0].spans] == [2, 0]
        assert max(size for size, _ in plan.stretches[0].spans) <= skipped.SIZE_MAX + 200
        Repair(maker.store, big, plan).run()
        assert make_plan(maker.store, big, []).steps == []

    def test_property_crcs_are_kept_up_where_the_store_insists(self, tmp_path: Path) -> None:
        maker = sound_store(tmp_path, 20)
        insists = replace(SETTINGS, force_property_crc=True)
        assert "PROPERTY_CRC_MISSING" in rules(look(maker, insists))
        data = skipped.encode(507, 0, skipped.Lost(), 1, with_crc=True)
        assert record.decode(data).properties.startswith(b"__CRC32#")


class _Big(StoreMaker):
    """Segments of 16 MiB."""

    def path(self, offset: int) -> Path:
        return self.store.commitlog / f"{0:020d}"

    def append(self, body: bytes, topic: str = "TopicA", queue_id: int = 0) -> Stored:
        self.path(0).touch()
        os.truncate(self.path(0), 16 << 20)
        made = record.Record(
            topic=topic.encode(),
            body=body,
            queue_offset=len(self.records),
            physical_offset=self.end,
            store_timestamp=NOON,
        )
        data = record.encode(made)
        with self.path(0).open("r+b") as file:
            file.seek(self.end)
            file.write(data)
        stored = Stored(self.end, data, topic, 0, len(self.records), NOON)
        self.records.append(stored)
        self.end += len(data)
        return stored

    def write(self, offset: int, data: bytes) -> None:
        with self.path(0).open("r+b") as file:
            file.seek(offset)
            file.write(data)


LOST_FOR_GOOD = ("a_segment", "a_short_segment", "a_failed_sync")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
class TestEveryFault:
    def test_is_repaired_so_that_verify_is_content_and_a_node_starts(self, maker: StoreMaker, fault: Fault) -> None:
        fault(maker)
        skip = [damage.start for damage in look(maker).log.damages]
        if fault is the_first_segment:
            with pytest.raises(RepairRefused, match="repair --yes --skip 0`"):
                mend_all(maker, *skip)
            skip = [0]
        if fault.__name__ in LOST_FOR_GOOD:
            before = everything(maker)
            with pytest.raises(RepairRefused, match="restore"):
                mend_all(maker, *skip)
            assert everything(maker) == before
            return
        assert mend_all(maker, *skip)
        found = look(maker)
        assert found.weight is Weight.NOTE, found.findings.rows
        recovered = recover(maker.store, SETTINGS)
        assert recovered.dispatched == recovered.end
        assert plan_of(maker).steps == []

    def test_nothing_is_done_without_yes(self, maker: StoreMaker, fault: Fault) -> None:
        fault(maker)
        before = everything(maker)
        plan = plan_of(maker, *[damage.start for damage in look(maker).log.damages])
        assert plan.steps or plan.refused
        assert everything(maker) == before


class TestAKillInTheMiddle:
    @pytest.mark.parametrize("nth", range(1, 13))
    def test_leaves_a_store_that_a_second_run_finishes(self, maker: StoreMaker, nth: int) -> None:
        maker.write(maker.records[100].at + 30, bytes(3 * 507))
        (maker.store.config / "topics.json").write_text("{")
        start = maker.records[100].at
        pid = os.fork()
        if pid == 0:
            _die_at(maker, start, nth)
        _, status = os.waitpid(pid, 0)
        killed = os.WIFSIGNALED(status)
        damages = [damage.start for damage in look(maker).log.damages]
        plan = plan_of(maker, start, *damages)
        Repair(maker.store, SETTINGS, plan).run()
        assert look(maker).weight == 0, (killed, look(maker).findings.rows)
        for topic, queue_id in QUEUES:
            assert numbers(maker, topic, queue_id) == of_queue(maker, {100, 101, 102, 103}, topic, queue_id)
        assert killed is (nth <= 11)

    @pytest.mark.parametrize("nth", range(2, 11))
    def test_leaves_a_store_that_a_start_reads_without_a_wrong_message(self, maker: StoreMaker, nth: int) -> None:
        maker.write(maker.records[100].at + 300, b"\xff")
        start = maker.records[100].at
        pid = os.fork()
        if pid == 0:
            _die_at(maker, start, nth)
        os.waitpid(pid, 0)
        try:
            recovered = recover(maker.store, SETTINGS)
        except TowlineError:
            return  # the stretch is as damaged as it was
        assert recovered.end == maker.end
        for topic, queue_id in QUEUES:
            found = numbers(maker, topic, queue_id)
            assert found == of_queue(maker, {100}, topic, queue_id)[: len(found)]


def _die_at(maker: StoreMaker, start: int, nth: int) -> None:
    """In a child: repairs, and kills itself at the nth thing it would do."""
    said: list[str] = []

    def note(what: str) -> None:
        said.append(what)
        if len(said) == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        Repair(maker.store, SETTINGS, plan_of(maker, start), note=note).run()
    finally:
        os._exit(0)


def test_nothing_is_done_to_a_sound_store(maker: StoreMaker) -> None:
    before = everything(maker)
    plan = plan_of(maker, 12345)
    assert (plan.steps, plan.refused) == ([], [])
    assert plan.notes == ["no damage begins at 12345: there is nothing to step over"]
    assert Repair(maker.store, SETTINGS, plan).run() == []
    assert everything(maker) == before


def test_topics_that_are_lost_are_made_from_the_queues(maker: StoreMaker) -> None:
    for name in ("topics.json", "topics.json.bak"):
        (maker.store.config / name).write_text("[]")
    mend_all(maker)
    table = look(maker)
    assert table.weight == 0
    assert '"TopicB"' in (maker.store.config / "topics.json").read_text()


def test_a_body_that_was_repaired_is_found_in_diverged(maker: StoreMaker) -> None:
    a_body(maker)
    mend_all(maker, maker.records[100].at)
    assert {int(path.name.partition("-")[0]) for path in maker.store.diverged.glob("0*")} == {maker.records[100].at}


class TestAStoreThatWasClosed:
    """Its queues point to records that were whole, whatever the durable offset says."""

    @staticmethod
    def without_durable(maker: StoreMaker) -> None:
        maker.store.durable.unlink()

    @staticmethod
    def durable_behind(maker: StoreMaker) -> None:
        at = maker.records[-40].at
        maker.durable(at, queues=at)

    @pytest.mark.parametrize("forget", [without_durable, durable_behind])
    @pytest.mark.parametrize(
        ("first", "at", "size", "lost"),
        [(-10, 33, 3, 1), (-1, 300, 1, 1), (-3, 0, 3 * 507, 3), (-1, 0, 507, 1), (-20, 4, 4, 1)],
    )
    @pytest.mark.parametrize("data", [b"\xff", b"\0"])
    def test_loses_nothing_unnamed(
        self,
        maker: StoreMaker,
        forget: Callable[[StoreMaker], None],
        first: int,
        at: int,
        size: int,
        lost: int,
        data: bytes,
    ) -> None:
        forget(maker)
        stored = maker.records[first]
        maker.write(stored.at + at, data * size)
        found = look(maker)
        assert found.weight is Weight.DAMAGE
        assert [damage.start for damage in found.log.damages] == [stored.at]
        with pytest.raises(RepairRefused, match=f"--skip {stored.at}"):
            mend_all(maker)
        mend_all(maker, stored.at)
        assert look(maker).weight is Weight.NOTE
        number = len(maker.records) + first
        for topic, queue_id in QUEUES:
            expected = of_queue(maker, set(range(number, number + lost)), topic, queue_id)
            assert numbers(maker, topic, queue_id) == expected

    def test_may_hold_stale_bytes_of_a_real_broker_behind_its_end(self, maker: StoreMaker) -> None:
        maker.store.durable.unlink()
        maker.write(maker.end, maker.records[5].data[:200])
        assert rules(look(maker)) == ["NO_DURABLE", "TORN_TAIL"]

    def test_that_was_not_closed_may_have_lost_what_its_queues_point_to(self, maker: StoreMaker) -> None:
        self.durable_behind(maker)
        (maker.root / "abort").write_text("1")
        maker.write(maker.records[-10].at + 30, b"\xff" * 3)
        found = look(maker)
        assert (found.weight, found.log.damages) == (Weight.HEALS, [])


class TestAnIdleQueue:
    """Its records were deleted with their segment: only its file knows how many there were."""

    COUNT = 20

    @pytest.fixture
    def idle(self, tmp_path: Path) -> StoreMaker:
        maker = StoreMaker(tmp_path / "idle")
        for _ in range(self.COUNT):
            maker.append(bytes(400), "Idle", 0)
        maker.fill(300)
        maker.dispatch(maker.end)
        state_files(maker)
        maker.path(0).unlink()
        maker.durable(maker.end, queues=maker.end, log_min=SEGMENT)
        assert rules(look(maker)) == []
        return maker

    @staticmethod
    def poke(maker: StoreMaker, topic: str, number: int, data: bytes) -> None:
        at = number * 20
        queue = maker.store.consumequeue / topic / "0"
        with (queue / f"{at - at % QUEUE_FILE:020d}").open("r+b") as file:
            file.seek(at % QUEUE_FILE)
            file.write(data)

    @staticmethod
    def end(maker: StoreMaker) -> int:
        recovered = recover(maker.store, SETTINGS)
        (found,) = [queue for queue in recovered.queues if queue.topic == "Idle"]
        assert found.min_offset == found.end_offset
        return found.end_offset

    def test_keeps_its_numbers_when_another_queue_is_damaged(self, idle: StoreMaker) -> None:
        self.poke(idle, "TopicB", 70, b"\x01")
        mend_all(idle)
        assert look(idle).weight is Weight.NOTE
        assert self.end(idle) == self.COUNT

    @pytest.mark.parametrize("number", [16, 17, 19])
    @pytest.mark.parametrize("data", [b"\x01", bytes(20), b"\0" * 8 + b"\xff"])
    def test_keeps_its_numbers_when_it_is_damaged_itself(self, idle: StoreMaker, number: int, data: bytes) -> None:
        self.poke(idle, "Idle", number, data)
        last_is_gone = number == self.COUNT - 1 and not any(data)
        assert rules(look(idle)) == ([] if last_is_gone else ["QUEUE_FILLER"])
        self.poke(idle, "TopicB", 70, b"\x01")
        mend_all(idle)
        assert look(idle).weight is Weight.NOTE
        assert self.end(idle) == self.COUNT - last_is_gone

    def test_keeps_its_numbers_when_queue_files_had_another_size(self, idle: StoreMaker) -> None:
        other = replace(SETTINGS, queue_file_size=QUEUE_FILE * 2)
        Repair(idle.store, other, make_plan(idle.store, other, [])).run()
        ends = {queue.topic: queue.end_offset for queue in recover(idle.store, other).queues}
        assert ends["Idle"] == self.COUNT

    @pytest.mark.parametrize("exchanged", [True, False])
    def test_keeps_its_numbers_through_a_kill(
        self, idle: StoreMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, exchanged: bool
    ) -> None:
        if not exchanged:
            monkeypatch.setattr("towline.log.repair.rebuild.exchange", lambda *_: False)
        self.poke(idle, "TopicB", 70, b"\x01")
        for nth in range(1, 10):
            maker = copy_of(idle, tmp_path / str(nth))
            pid = os.fork()
            if pid == 0:
                _die_at(maker, 0, nth)
            os.waitpid(pid, 0)
            gone = not exchanged and not maker.store.consumequeue.exists()
            mend_all(maker)
            assert look(maker).weight is Weight.NOTE
            if not gone:
                assert self.end(maker) == self.COUNT, nth
