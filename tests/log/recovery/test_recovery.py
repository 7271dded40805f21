"""Recovery of whole stores: where the log ends for each kind of damage, and what is kept, zeroed and refused."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.log.stores import INDEXES, NOON, QUEUE_FILE, SEGMENT, SETTINGS, SLOTS, StoreMaker, contents, open_index
from towline.errors import CorruptLog, DiskFull, SegmentSizeMismatch, StoreSyncFailed, SyncFailed
from towline.format.files.checkpoint import Checkpoint
from towline.format.files.checkpoint import encode as encode_checkpoint
from towline.format.files.durable import Durable
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.recovery import recover_derived, recovery
from towline.log.repair.clear_sync_failure import clear_sync_failure
from towline.log.state.checkpoint_file import CheckpointFile
from towline.log.state.durable_file import DurableFile

COUNT = 300  # records of 507 bytes: two full segments and a third


@pytest.fixture
def maker(tmp_path: Path) -> StoreMaker:
    """A store killed by a power cut: all is durable up to record 150, the rest may be anything."""
    maker = StoreMaker(tmp_path)
    maker.fill(COUNT)
    maker.dispatch(maker.end)
    maker.durable(maker.records[150].at, queues=maker.records[150].at)
    return maker


def numbers_in_queues(maker: StoreMaker) -> dict[tuple[str, int], list[int]]:
    files = ConsumeQueueFiles(maker.store.consumequeue, QUEUE_FILE, 8)
    found: dict[tuple[str, int], list[int]] = {}
    for topic, queue_id in files.list_queues():
        first, end = files.end_of(topic, queue_id, 1 << 60)
        offsets: list[int] = []
        while first < end:
            entries = files.read(topic, queue_id, first, end - first)
            offsets += entries["physical_offset"].tolist()
            first += len(entries)
        if offsets:
            found[topic, queue_id] = offsets
    files.close()
    return found


def model_queues(maker: StoreMaker, upto: int) -> dict[tuple[str, int], list[int]]:
    found: dict[tuple[str, int], list[int]] = {}
    for stored in maker.records:
        if stored.at < upto:
            found.setdefault((stored.topic, stored.queue_id), []).append(stored.at)
    return found


def indexed(maker: StoreMaker) -> list[int]:
    """Log offset of every record that its key finds."""
    service = open_index(maker.store, writable=False)
    found = [
        stored.at
        for number, stored in enumerate(maker.records)
        if stored.at in service.query(stored.topic, f"k{number}", 0, 1 << 60)
    ]
    service.close()
    return found


# --- damage behind the durable offset, which is at record 150. Each returns the number of the first record lost.


def lost_tail(maker: StoreMaker) -> int:
    maker.zero_from(maker.records[200].at)
    return 200


def torn_record(maker: StoreMaker) -> int:
    maker.zero_from(maker.records[200].at + 77)
    return 200


def torn_head(maker: StoreMaker) -> int:
    maker.zero_from(maker.records[200].at + 3)
    return 200


def flipped_bit(maker: StoreMaker) -> int:
    stored = maker.records[200]
    maker.write(stored.at + 300, bytes([stored.data[300] ^ 4]))
    return 200


def flipped_property(maker: StoreMaker) -> int:
    stored = maker.records[200]
    maker.write(stored.end - 3, b"\0")
    return 200


def zero_hole(maker: StoreMaker) -> int:
    maker.write(maker.records[200].at - 100, bytes(4096))
    return 199


def hole_over_a_border(maker: StoreMaker) -> int:
    first = next(number for number, stored in enumerate(maker.records) if stored.at > 2 * SEGMENT)
    maker.write(maker.records[first - 1].at, bytes(SEGMENT - maker.records[first - 1].at % SEGMENT))
    maker.write(2 * SEGMENT, bytes(100))
    return first - 1


def lost_segment(maker: StoreMaker) -> int:
    maker.path(2 * SEGMENT).unlink()
    return next(number for number, stored in enumerate(maker.records) if stored.at >= 2 * SEGMENT)


def wrong_place(maker: StoreMaker) -> int:
    """A record that belongs elsewhere."""
    maker.write(maker.records[200].at, maker.records[100].data)
    return 200


TAILS = [
    lost_tail,
    torn_record,
    torn_head,
    flipped_bit,
    flipped_property,
    zero_hole,
    hole_over_a_border,
    lost_segment,
    wrong_place,
]


@pytest.mark.parametrize("damage", TAILS, ids=lambda damage: damage.__name__)
class TestDamageBehindTheDurableOffset:
    def test_ends_the_log_and_keeps_every_later_byte(
        self, maker: StoreMaker, damage: Callable[[StoreMaker], int]
    ) -> None:
        end = maker.records[damage(maker)].at
        before = maker.log_bytes()
        recovered = maker.recover()
        assert recovered.end == end or (recovered.end, end % SEGMENT) == (end, 0)
        assert maker.log_bytes()[:end] == before[:end]
        assert not any(maker.log_bytes()[end:])
        again = bytearray(len(before))
        for offset, data in maker.kept().items():
            again[offset : offset + len(data)] = data
        assert again[end:] == before[end:]
        assert recovered.cut_bytes == sum(map(len, maker.kept().values()))
        assert recovered.dispatched == maker.records[150].at
        assert recovered.last_store_timestamp == max(s.timestamp for s in maker.records if s.end <= end)
        assert recovered.active_base == end - end % SEGMENT

    def test_recovering_twice_is_recovering_once(self, maker: StoreMaker, damage: Callable[[StoreMaker], int]) -> None:
        damage(maker)
        first = maker.recover()
        after = contents(maker.store)
        second = maker.recover()
        assert contents(maker.store) == after
        clean: dict[str, Any] = {"notes": [], "cases": [], "cut_bytes": 0, "seconds": 0.0, "stages": {}}
        assert replace(second, **clean) == replace(first, **clean)
        assert second.cut_bytes == 0

    def test_queues_and_index_end_where_they_were_synced(
        self, maker: StoreMaker, damage: Callable[[StoreMaker], int]
    ) -> None:
        damage(maker)
        recovered = maker.recover()
        below = maker.records[150].at
        assert numbers_in_queues(maker) == model_queues(maker, below)
        assert indexed(maker) == [stored.at for stored in maker.records if stored.at < below]
        ends = {(queue.topic, queue.queue_id): (queue.min_offset, queue.end_offset) for queue in recovered.queues}
        assert ends == {key: (0, len(offsets)) for key, offsets in model_queues(maker, below).items()}


# --- damage below the durable offset. Each returns the record and the rule that the refusal must name.


def bit_of_a_body(maker: StoreMaker) -> tuple[int, str]:
    stored = maker.records[140]
    maker.write(stored.at + 300, bytes([stored.data[300] ^ 4]))
    return 140, "BODY_CRC"


def bit_of_a_size(maker: StoreMaker) -> tuple[int, str]:
    stored = maker.records[149]
    maker.write(stored.at + 2, bytes([stored.data[2] ^ 4]))
    return 149, "PARTS_DO_NOT_ADD_UP"


def bit_of_a_body_size(maker: StoreMaker) -> tuple[int, str]:
    stored = maker.records[149]
    maker.write(stored.at + 86, bytes([stored.data[86] ^ 2]))
    return 149, "PARTS_DO_NOT_ADD_UP"


def zeros(maker: StoreMaker) -> tuple[int, str]:
    maker.write(maker.records[140].at, bytes(1000))
    return 140, "SIZE_TOO_SMALL"


def moved(maker: StoreMaker) -> tuple[int, str]:
    maker.write(maker.records[140].at, maker.records[139].data)
    return 140, "PHYSICAL_OFFSET"


def bit_of_a_magic(maker: StoreMaker) -> tuple[int, str]:
    maker.write(maker.records[149].at + 7, b"\xa6")
    return 149, "MAGIC"


class TestDamageBelowTheDurableOffset:
    @pytest.mark.parametrize(
        "damage",
        [bit_of_a_body, bit_of_a_size, bit_of_a_body_size, zeros, moved, bit_of_a_magic],
        ids=lambda damage: damage.__name__,
    )
    def test_is_refused_naming_file_byte_and_rule_and_changes_nothing(
        self, maker: StoreMaker, damage: Callable[[StoreMaker], tuple[int, str]]
    ) -> None:
        number, rule = damage(maker)
        before = contents(maker.store)
        at = maker.records[number].at
        with pytest.raises(CorruptLog, match="restore the file from a copy") as refusal:
            maker.recover()
        assert (refusal.value.path, refusal.value.at, refusal.value.rule) == (str(maker.path(at)), at % SEGMENT, rule)
        assert contents(maker.store) == before

    def test_a_damaged_blank_is_refused_too(self, maker: StoreMaker) -> None:
        maker.write(maker.blanks[0] + 4, b"\0")
        maker.durable(SEGMENT)
        with pytest.raises(CorruptLog) as refusal:
            maker.recover()
        assert refusal.value.at == maker.blanks[0] % SEGMENT

    def test_a_missing_segment_is_refused(self, maker: StoreMaker) -> None:
        maker.path(SEGMENT).unlink()
        with pytest.raises(CorruptLog, match="MISSING"):
            maker.recover()

    def test_a_missing_last_segment_is_refused(self, maker: StoreMaker) -> None:
        maker.durable(maker.end)
        maker.path(maker.end).unlink()
        with pytest.raises(CorruptLog, match="MISSING"):
            maker.recover()

    def test_a_log_that_went_away_is_refused(self, maker: StoreMaker) -> None:
        for path in maker.store.commitlog.iterdir():
            path.unlink()
        with pytest.raises(CorruptLog, match="MISSING"):
            maker.recover()

    def test_properties_of_a_durable_record_are_left_alone(self, maker: StoreMaker) -> None:
        maker.write(maker.records[140].end - 3, b"\0")
        assert maker.recover().end == maker.end


class TestTheEndOfASlave:
    @pytest.mark.parametrize("arrived", [1, 7, 50, 87, 88, 89, 200, 490, 505, 506])
    def test_a_record_that_arrived_in_part_is_cut_though_its_part_is_durable(
        self, maker: StoreMaker, arrived: int
    ) -> None:
        stored = maker.records[160]
        maker.zero_from(stored.at + arrived)
        maker.durable(stored.at + arrived, queues=maker.records[150].at)
        recovered = maker.recover()
        assert recovered.end == stored.at
        part = stored.data[:arrived].rstrip(b"\0")
        assert maker.kept() == ({stored.at: part} if part else {})
        assert DurableFile(maker.root).load() == recovered.durable
        assert recovered.durable.flushed == stored.at

    def test_a_log_may_begin_anywhere(self, tmp_path: Path) -> None:
        maker = StoreMaker(tmp_path, base=5 * SEGMENT)
        maker.fill(200)
        maker.dispatch(maker.end)
        maker.durable(maker.records[150].at, queues=maker.records[100].at)
        recovered = maker.recover()
        assert (recovered.log_min, recovered.end) == (5 * SEGMENT, maker.end)
        assert recovered.dispatched == maker.records[100].at

    def test_an_empty_log_may_begin_anywhere(self, tmp_path: Path) -> None:
        maker = StoreMaker(tmp_path)
        maker.durable(5 * SEGMENT, queues=5 * SEGMENT, log_min=5 * SEGMENT)
        recovered = maker.recover()
        assert (recovered.log_min, recovered.end, recovered.dispatched) == (5 * SEGMENT,) * 3
        assert not recovered.allocated > recovered.end


class TestStaleBytes:
    def test_equal_sized_records_do_not_come_back_when_the_log_grows_over_the_cut(self, maker: StoreMaker) -> None:
        lost = maker.records[201]
        cut = maker.records[200]
        maker.write(cut.at + 300, b"\xff")
        recovered = maker.recover()
        assert recovered.end == cut.at
        maker.write(cut.at, cut.data)  # the next append, of the same size: a stale record 201 would stand behind it
        again = maker.recover()
        assert again.end == cut.end
        assert maker.log_bytes()[lost.at : lost.end] == bytes(len(lost.data))

    def test_an_extra_segment_of_zeros_is_no_part_of_the_log(self, maker: StoreMaker) -> None:
        maker.write(3 * SEGMENT, b"\0")
        recovered = maker.recover()
        assert recovered.end == maker.end
        assert recovered.cut_bytes == 0
        assert recovered.allocated == 3 * SEGMENT
        assert maker.kept() == {}

    def test_a_zero_length_last_file_is_removed(self, maker: StoreMaker) -> None:
        maker.path(3 * SEGMENT).touch()
        assert maker.recover().end == maker.end
        assert not maker.path(3 * SEGMENT).exists()

    def test_the_rest_of_the_active_segment_is_reserved(self, maker: StoreMaker) -> None:
        path = maker.path(maker.end)
        before = path.stat().st_blocks
        maker.recover()
        assert path.stat().st_blocks * 512 >= SEGMENT > before * 512

    def test_on_a_full_disk_the_log_is_whole_and_the_next_start_reserves(
        self, maker: StoreMaker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(fd: int, start: int, end: int) -> None:
            raise DiskFull("commitlog", end - start)

        with monkeypatch.context() as patched:
            patched.setattr(recovery, "reserve", full)
            recovered = maker.recover()
        assert recovered.end == maker.end
        assert any("puts are refused until there is room" in note for note in recovered.notes)
        assert maker.path(maker.end).stat().st_blocks * 512 < SEGMENT
        assert not maker.recover().notes
        assert maker.path(maker.end).stat().st_blocks * 512 >= SEGMENT


class TestRefusals:
    def test_a_wrong_sized_segment(self, maker: StoreMaker) -> None:
        maker.path(0).write_bytes(bytes(10))
        with pytest.raises(SegmentSizeMismatch):
            maker.recover()

    def test_a_wrong_sized_queue_file(self, maker: StoreMaker) -> None:
        with pytest.raises(SegmentSizeMismatch):
            maker.recover(replace(SETTINGS, queue_file_size=QUEUE_FILE // 2))

    def test_a_failed_sync_is_not_forgotten_until_the_bytes_were_written_anew(self, maker: StoreMaker) -> None:
        file = DurableFile(maker.root)
        flushed = maker.records[150].at
        file.save(Durable(flushed=flushed, sync_failed=True))
        file.close()
        for _ in range(2):
            with pytest.raises(StoreSyncFailed, match=str(flushed)):
                maker.recover()
        before = maker.log_bytes()
        assert clear_sync_failure(maker.store, SEGMENT) > 0
        assert maker.log_bytes() == before
        assert maker.recover().end == maker.end
        assert clear_sync_failure(maker.store, SEGMENT) == 0

    def test_a_sync_that_fails_in_recovery_is_not_forgotten_either(
        self, maker: StoreMaker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(path: Path) -> None:
            raise SyncFailed(str(path), 0, 0, 5, "Input/output error")

        with monkeypatch.context() as patched:
            patched.setattr(recovery, "sync_file", fails)
            with pytest.raises(SyncFailed):
                maker.recover()
        with pytest.raises(StoreSyncFailed):
            maker.recover()


class TestSyncing:
    def test_every_file_with_bytes_behind_the_durable_offset_is_synced_with_its_directory(
        self, maker: StoreMaker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[Path] = []
        monkeypatch.setattr(recovery, "sync_file", synced.append)
        monkeypatch.setattr(recovery, "sync_directory", synced.append)
        maker.recover()
        assert set(synced) == {maker.path(SEGMENT), maker.path(2 * SEGMENT), maker.store.commitlog}


class TestQueuesAndIndex:
    def test_queues_behind_the_log_are_left_for_reput(self, tmp_path: Path) -> None:
        maker = StoreMaker(tmp_path)
        maker.fill(COUNT)
        maker.dispatch(maker.records[50].at)
        maker.durable(maker.end, queues=maker.records[50].at)
        recovered = maker.recover()
        assert recovered.dispatched == maker.records[50].at
        assert recovered.end == maker.end
        assert numbers_in_queues(maker) == model_queues(maker, maker.records[50].at)

    def test_queues_ahead_of_a_cut_log_are_cut_with_it(self, maker: StoreMaker) -> None:
        maker.durable(maker.records[150].at, queues=maker.records[250].at)
        maker.zero_from(maker.records[200].at)
        recovered = maker.recover()
        assert recovered.dispatched == recovered.end == maker.records[200].at
        assert numbers_in_queues(maker) == model_queues(maker, recovered.end)
        assert indexed(maker) == [stored.at for stored in maker.records[:200]]

    def test_garbage_behind_the_watermark_is_zeroed(self, maker: StoreMaker) -> None:
        below = maker.records[150].at
        kept = len(model_queues(maker, below)["TopicA", 0])
        path = maker.store.consumequeue / "TopicA" / "0" / f"{kept * 20 // QUEUE_FILE * QUEUE_FILE:020d}"
        with path.open("r+b") as file:
            file.seek(kept * 20 % QUEUE_FILE)
            file.write(b"\xa5" * 33)
        maker.recover()
        assert numbers_in_queues(maker) == model_queues(maker, below)

    def test_index_slots_that_point_past_the_count_are_walked_back(self, maker: StoreMaker) -> None:
        (path, *_) = sorted(maker.store.index.iterdir(), reverse=True)
        with path.open("r+b") as file:
            file.seek(40)
            file.write((INDEXES - 1).to_bytes(4, "big") * SLOTS)
        maker.durable(maker.end, queues=maker.end)
        assert maker.recover().dispatched == maker.end
        assert indexed(maker) == [stored.at for stored in maker.records]

    def test_a_store_without_queues_is_derived_from_its_beginning(self, maker: StoreMaker) -> None:
        for path in sorted(maker.store.consumequeue.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        recovered = maker.recover()
        assert recovered.dispatched == 0
        assert recovered.queues == []
        assert open_index(maker.store).names == ()

    def test_without_a_log_queues_and_index_are_emptied(self, maker: StoreMaker) -> None:
        for path in maker.store.commitlog.iterdir():
            path.unlink()
        (maker.root / "durable").unlink()
        recovered = maker.recover()
        assert (recovered.end, recovered.queues) == (0, [])
        assert not [path for path in maker.store.consumequeue.rglob("*") if path.is_file()]
        assert open_index(maker.store).names == ()

    def test_an_empty_directory_becomes_an_empty_store(self, tmp_path: Path) -> None:
        maker = StoreMaker(tmp_path)
        (tmp_path / "abort").unlink()
        recovered = maker.recover()
        assert (recovered.log_min, recovered.end, recovered.dispatched, recovered.allocated) == (0, 0, 0, 0)
        assert recovered.clean
        assert DurableFile(tmp_path).load() == Durable()
        assert maker.recover().end == 0

    def test_the_minimum_follows_the_log_that_a_real_broker_shortened(self, maker: StoreMaker) -> None:
        maker.path(0).unlink()
        (maker.root / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(physic_msg_timestamp=NOON)))
        recovered = maker.recover()
        assert recovered.log_min == SEGMENT
        model = model_queues(maker, maker.records[150].at)
        for queue in recovered.queues:
            gone = [at for at in model[queue.topic, queue.queue_id] if at < SEGMENT]
            assert queue.min_offset == len(gone)

    def test_a_deletion_that_was_published_but_not_done_counts(self, maker: StoreMaker) -> None:
        maker.durable(maker.records[150].at, queues=maker.records[150].at, log_min=SEGMENT)
        assert maker.recover().log_min == SEGMENT


class TestStoresOfARealBroker:
    """No durable-offset file: the checkpoint says from where on to look (spec 8.4)."""

    @pytest.fixture
    def broker(self, maker: StoreMaker) -> StoreMaker:
        (maker.root / "durable").unlink()
        return maker

    def checkpoint(self, maker: StoreMaker, number: int, index: int = 0) -> None:
        time = NOON + number + 3000
        content = Checkpoint(physic_msg_timestamp=time, logics_msg_timestamp=time, index_msg_timestamp=index)
        CheckpointFile(maker.root).save(content)

    def test_without_a_checkpoint_everything_is_derived_again(self, broker: StoreMaker) -> None:
        recovered = broker.recover()
        assert (recovered.end, recovered.dispatched) == (broker.end, 0)
        assert numbers_in_queues(broker) == {}

    def test_a_clean_store_is_taken_from_the_last_segment_the_checkpoint_covers(self, broker: StoreMaker) -> None:
        (broker.root / "abort").unlink()
        self.checkpoint(broker, 150)
        recovered = broker.recover()
        assert recovered.clean
        assert recovered.dispatched == SEGMENT
        assert numbers_in_queues(broker) == model_queues(broker, SEGMENT)
        assert indexed(broker) == [stored.at for stored in broker.records if stored.at < SEGMENT]

    def test_after_a_crash_the_index_that_was_not_full_is_not_trusted(self, broker: StoreMaker) -> None:
        self.checkpoint(broker, 299, index=NOON + 200)
        recovered = broker.recover()
        assert recovered.dispatched == SEGMENT
        assert max(indexed(broker)) < SEGMENT

    def test_stale_bytes_behind_a_clean_end_are_moved_aside(self, broker: StoreMaker) -> None:
        (broker.root / "abort").unlink()
        self.checkpoint(broker, 299)
        broker.write(broker.end, b"\x07" * 100)
        recovered = broker.recover()
        assert recovered.end == broker.end
        assert broker.kept() == {broker.end: b"\x07" * 100}

    def test_a_broken_checkpoint_is_no_checkpoint(self, broker: StoreMaker) -> None:
        (broker.root / "checkpoint").write_bytes(b"short")
        assert broker.recover().dispatched == 0

    def test_recovery_leaves_the_state_files_behind(self, broker: StoreMaker) -> None:
        broker.recover()
        assert DurableFile(broker.root).load() == Durable(flushed=broker.end, segment_base=2 * SEGMENT)
        found = CheckpointFile(broker.root).load()
        assert found is not None
        assert found.physic_msg_timestamp == NOON + COUNT - 1


class TestAnyStore:
    @given(
        sizes=st.lists(st.integers(0, 9000), min_size=1, max_size=60),
        durable=st.floats(0, 1),
        queues=st.floats(0, 1),
        dispatched=st.floats(0, 1),
        lost=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 4)), max_size=4),
    )
    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_what_is_recovered_is_a_prefix_that_holds_everything_durable(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        sizes: list[int],
        durable: float,
        queues: float,
        dispatched: float,
        lost: list[tuple[float, int]],
    ) -> None:
        maker = StoreMaker(tmp_path_factory.mktemp("store"))
        for number, size in enumerate(sizes):
            maker.append(os.urandom(size), f"T{number % 3}", number % 2)
        borders = [stored.at for stored in maker.records] + [maker.end]
        flushed = borders[int(durable * len(sizes))]
        done = borders[int(dispatched * len(sizes))]
        synced = min(done, borders[int(queues * len(sizes))])
        maker.dispatch(done)
        maker.durable(flushed, queues=synced)
        first_lost = maker.end
        for where, pages in lost:
            page = max(int(where * maker.end) // 4096 * 4096, flushed)
            if page % SEGMENT + pages * 4096 <= SEGMENT and page < maker.end:
                maker.write(page, bytes(pages * 4096))
                first_lost = min(first_lost, page)
        written = maker.log_bytes()
        recovered = maker.recover()
        kept = [stored for stored in maker.records if stored.end <= recovered.end]
        assert recovered.end >= flushed
        assert recovered.end >= max((s.end for s in maker.records if s.end <= first_lost), default=0)
        assert all(written[stored.at : stored.end] == stored.data for stored in kept)
        assert recovered.end in {0, *(s.end for s in kept[-1:]), *(at - at % SEGMENT + SEGMENT for at in maker.blanks)}
        assert recovered.dispatched == min(synced, recovered.end)
        assert numbers_in_queues(maker) == model_queues(maker, recovered.dispatched)
        after = contents(maker.store)
        assert maker.recover().end == recovered.end
        assert contents(maker.store) == after
        reader = CommitLogReader(maker.store.commitlog, SEGMENT)
        reader.load()
        assert all(bytes(reader.record(stored.at, recovered.end)) == stored.data for stored in kept)
        reader.close()


def test_errors_of_write_back_are_told_from_before_the_first_queue_is_cut(
    maker: StoreMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sync of the file system, which many queues share, tells of errors since its descriptor was opened (H5)."""
    opened: list[bool] = []
    real = ConsumeQueueFiles.cut

    def cut(files: ConsumeQueueFiles, topic: str, queue_id: int, end_offset: int, *, synced: bool = True) -> bool:
        descriptors = Path("/proc/self/fd").iterdir()
        opened.append(any(entry.exists() and entry.samefile(files.root) for entry in descriptors))
        return real(files, topic, queue_id, end_offset, synced=synced)

    monkeypatch.setattr(recover_derived, "_TOGETHER", 0)
    monkeypatch.setattr(ConsumeQueueFiles, "cut", cut)
    maker.recover()
    assert opened == [True] * 4
