"""IndexFiles of a store: batches over several files, queries, cuts after a kill at any step, full disks."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.errors import DiskFull, SegmentSizeMismatch
from towline.format.files.index_file import Header, key_hash
from towline.kernels.jit.rows import DISPATCH, KEY
from towline.kernels.scan import index as kernels
from towline.log.queues import index_file, index_service
from towline.log.queues.index_service import IndexService

Put = tuple[str, int, int]  # key, log offset, store time; the topic is TopicA
SLOTS, INDEXES = 7, 6
NOON = 1_700_000_000_000
GOLDEN = """
0000018bcfe57d7c 0000018bcfe68d20 000000000000238c 00000000000024b8
00000000 0000000000000000 00000000 00000000
717125c9 000000000000238c 00000005 00000000
717125c8 00000000000023f0 00000002 00000000
717125c9 0000000000002454 00000004 00000001
6b6374ef 00000000000024b8 00000000 00000000
"""
PUTS = st.lists(st.tuples(st.sampled_from(["k1", "k2", "k3", "a"]), st.integers(0, 50), st.integers(0, 9000))).map(
    lambda puts: [
        (key, sum(step for _, step, _ in puts[: number + 1]), NOON + sum(ms for _, _, ms in puts[: number + 1]))
        for number, (key, _, _) in enumerate(puts)
    ]
)


def batch(puts: list[Put]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As a dispatch scan gives it: the log's bytes, a row per record, a key per record."""
    topic = "TopicA"
    log = topic + "".join(key for key, _, _ in puts)
    rows, keys = np.zeros(len(puts), dtype=DISPATCH), np.zeros(len(puts), dtype=KEY)
    at = len(topic)
    for number, (key, physical_offset, timestamp) in enumerate(puts):
        rows[number]["phy"], rows[number]["store_timestamp"] = physical_offset, timestamp
        rows[number]["topic_length"] = len(topic)
        keys[number] = (at, len(key), number)
        at += len(key)
    return np.frombuffer(log.encode(), dtype=np.uint8), rows, keys


def service_of(directory: Path, slots: int = SLOTS, indexes: int = INDEXES) -> IndexService:
    service = IndexService(directory, slots, indexes, writable=True)
    service.load()
    return service


@pytest.fixture
def service(tmp_path: Path) -> Iterator[IndexService]:
    service = service_of(tmp_path / "index")
    yield service
    service.close()


def used_bytes(service: IndexService) -> list[bytes]:
    """Of each file: header, slots, entries below the count."""
    found = []
    for name in service.names:
        file = service.file(name)
        end = 40 + 4 * service.slots + 20 * file.header.index_count
        found.append(bytes(file.mapped.view[:end]))
    return found


def model_query(puts: list[Put], key: str, limit: int = 64) -> list[int]:
    return [physical_offset for held, physical_offset, _ in reversed(puts) if held == key][:limit]


class TestPut:
    def test_the_golden_rolled_file(self, service: IndexService) -> None:
        service.put(*batch([("x", 8000 + number, NOON - 4000) for number in range(4)] + [("x", 9000, NOON)]))
        golden = [("k1", 9100, 5500), ("k2", 9200, 7999), ("k1", 9300, 9500), ("polygenelubricants", 9400, 4000)]
        service.put(*batch([(key, physical_offset, NOON + ms) for key, physical_offset, ms in golden]))
        assert len(service.names) == 2
        found = bytes(service.file(service.names[1]).mapped.view)
        words = GOLDEN.replace("0000018bcfe68d20", f"{NOON + 4000:016x}")
        expected = bytes.fromhex(words)
        assert found[:32] == expected[:32]
        assert found[68 : 68 + 100] == expected[32:]
        assert service.query("TopicA", "k1", 0, 1 << 62) == [9300, 9100]

    @given(puts=PUTS, cuts=st.lists(st.integers(0, 20)))
    def test_batches_over_several_files_write_what_single_puts_would(
        self, tmp_path_factory: pytest.TempPathFactory, puts: list[Put], cuts: list[int]
    ) -> None:
        single, many = (service_of(tmp_path_factory.mktemp("index")) for _ in range(2))
        for put in puts:
            single.put(*batch([put]))
        rest = puts
        for size in cuts:
            many.put(*batch(rest[:size]))
            rest = rest[size:]
        many.put(*batch(rest))
        assert used_bytes(many) == used_bytes(single)
        for key in ("k1", "k2", "k3", "a", "none"):
            assert many.query("TopicA", key, 0, 1 << 62) == model_query(puts, key)
        single.close()
        many.close()

    def test_a_batch_larger_than_the_scratch_is_put_in_parts(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(index_service, "_KEYS_AT_ONCE", 4)
        service = service_of(tmp_path, 100, 1000)
        puts = [(f"k{number % 9}", number, NOON) for number in range(100)]
        service.put(*batch(puts))
        assert service.query("TopicA", "k3", 0, 1 << 62) == model_query(puts, "k3")
        service.close()

    def test_a_full_disk_is_met_before_anything_was_put(
        self, service: IndexService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        puts = [("k1", number, NOON + number) for number in range(20)]
        service.put(*batch(puts[:3]))
        before = used_bytes(service)
        real, made = index_file.create_segment, []

        def full(directory: Path, size: int, name: str) -> Path:
            if made:
                raise DiskFull(name, size)
            made.append(name)
            return real(directory, size, name)

        with monkeypatch.context() as patched:
            patched.setattr(index_file, "create_segment", full)
            with pytest.raises(DiskFull):
                service.put(*batch(puts[3:]))
        assert used_bytes(service) == before
        assert len(list(service.directory.iterdir())) == 1
        service.put(*batch(puts[3:]))
        assert service.query("TopicA", "k1", 0, 1 << 62) == list(range(19, -1, -1))

    def test_names_grow_even_when_local_time_goes_back(self, service: IndexService) -> None:
        (service.directory / "29991231235959999").touch()
        (service.directory / "29991231235959999").write_bytes(bytes(40 + 4 * SLOTS + 20 * INDEXES))
        service.load()
        service.put(*batch([("k1", number, NOON) for number in range(12)]))
        assert service.names == ("29991231235959999", "30000101000000000", "30000101000000001")


class TestQuery:
    def test_times_select_entries_and_files(self, service: IndexService) -> None:
        puts = [("k1", number, NOON + 1000 * number) for number in range(20)]
        service.put(*batch(puts))
        assert service.query("TopicA", "k1", NOON + 7000, NOON + 11_000) == [11, 10, 9, 8, 7]
        assert service.query("TopicA", "k1", NOON + 30_000, NOON + 40_000) == []
        assert service.query("TopicA", "k1", 0, 1 << 62, 3) == [19, 18, 17]

    def test_a_reader_sees_new_files_and_misses_expired_ones(self, service: IndexService) -> None:
        reader = IndexService(service.directory, SLOTS, INDEXES)
        assert reader.query("TopicA", "k1", 0, 1 << 62) == []
        service.put(*batch([("k1", number, NOON) for number in range(12)]))
        assert len(reader.query("TopicA", "k1", 0, 1 << 62)) == 12
        assert len(service.delete_expired(8)) == 1
        assert reader.query("TopicA", "k1", 0, 1 << 62) == [11, 10, 9, 8, 7, 6, 5]
        assert len(service.delete_expired(1000)) == 1
        assert len(service.names) == 1
        reader.close()

    @pytest.mark.parametrize("steps", [1, 2], ids=["entries only", "entries and slots"])
    def test_a_batch_on_its_way_hides_no_older_entry(self, tmp_path: Path, steps: int) -> None:
        service = service_of(tmp_path, 7, 100)
        puts = [("k1", number, NOON) for number in range(10)]
        service.put(*batch(puts))
        half_put(service, [("k1", 10, NOON), ("k2", 11, NOON), ("k1", 12, NOON)], steps)
        reader = IndexService(tmp_path, 7, 100)
        assert reader.query("TopicA", "k1", 0, 1 << 62) == list(range(9, -1, -1))
        assert reader.query("TopicA", "k1", 0, 1 << 62, 2) == [9, 8]
        reader.close()
        service.close()

    def test_other_names_are_skipped_and_other_sizes_refused(self, service: IndexService) -> None:
        (service.directory / "lost+found").mkdir()
        (service.directory / "20250101000000000.new").write_bytes(b"unfinished")
        service.load()
        service.put(*batch([("k1", 1, NOON)]))
        assert service.query("TopicA", "k1", 0, 1 << 62) == [1]
        service.cut(100, lambda physical_offset: NOON)
        assert not (service.directory / "20250101000000000.new").exists()
        (service.directory / "29990101000000000").write_bytes(b"short")
        with pytest.raises(SegmentSizeMismatch):
            service.load()


def half_put(service: IndexService, puts: list[Put], steps: int) -> None:
    """What a kill leaves: entries without slots (1), or slots without the header (2)."""
    file = service.file(service.names[-1])
    header = file.header
    state = np.zeros(kernels.STATE_SIZE, dtype=np.int64)
    state[: kernels.INDEX_COUNT + 1] = (
        header.begin_timestamp,
        header.end_timestamp,
        header.begin_physical_offset,
        header.end_physical_offset,
        header.hash_slot_count,
        header.index_count,
    )
    heads = np.zeros(1024, dtype=np.int32)
    log, rows, keys = batch(puts)
    array = file.mapped.array
    kernels.put_entries(array, file.slots, file.indexes, state, log, rows, keys, 0, len(keys), heads)
    if steps > 1:
        kernels.put_slots(array, state, heads)


class TestCut:
    @given(puts=PUTS, at=st.integers(0, 200))
    def test_what_is_left_is_what_the_earlier_puts_would_have_made(
        self, tmp_path_factory: pytest.TempPathFactory, puts: list[Put], at: int
    ) -> None:
        times = {physical_offset: timestamp for _, physical_offset, timestamp in puts}
        kept = [put for put in puts if put[1] < at]
        cut, fresh = (service_of(tmp_path_factory.mktemp("index")) for _ in range(2))
        cut.put(*batch(puts))
        fresh.put(*batch(kept))
        cut.cut(at, times.__getitem__)
        assert used_bytes(cut) == used_bytes(fresh)
        cut.put(*batch(puts[len(kept) :]))
        fresh.put(*batch(puts[len(kept) :]))
        assert used_bytes(cut) == used_bytes(fresh)
        cut.close()
        fresh.close()

    @pytest.mark.parametrize("steps", [1, 2], ids=["entries only", "entries and slots"])
    def test_a_kill_between_the_steps_of_a_put_is_repaired(self, tmp_path: Path, steps: int) -> None:
        service = service_of(tmp_path, 7, 100)
        puts = [(f"k{number % 5}", number, NOON + number) for number in range(20)]
        service.put(*batch(puts[:10]))
        before = used_bytes(service)
        half_put(service, puts[10:], steps)
        service.close()
        again = service_of(tmp_path, 7, 100)
        again.cut(10, lambda physical_offset: NOON + physical_offset)
        assert used_bytes(again) == before
        again.put(*batch(puts[10:]))
        assert again.query("TopicA", "k1", 0, 1 << 62) == model_query(puts, "k1")
        again.close()

    def test_a_reader_is_given_nothing_of_a_put_before_its_header_is_written(self, tmp_path: Path) -> None:
        seen: dict[str, list[int]] = {}
        reader = IndexService(tmp_path, 7, 100)

        def ask(step: str) -> None:
            seen[step] = reader.query("TopicA", "k1", 0, 1 << 62)

        service = IndexService(tmp_path, 7, 100, writable=True, between=ask)
        service.load()
        service.put(*batch([("k1", number, NOON + number) for number in range(3)]))
        ask("header written")
        assert seen == {"slots": [], "header": [], "header written": [2, 1, 0]}
        service.close()
        reader.close()

    def test_a_reader_misses_nothing_while_slots_were_cut_and_the_header_not_yet(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        service = service_of(tmp_path, 7, 100)
        puts = [("k1", number, NOON + number) for number in range(20)]
        service.put(*batch(puts))
        seen: list[list[int]] = []
        reader = IndexService(tmp_path, 7, 100)
        real = index_file.IndexFile.store_header

        def look(file: index_file.IndexFile, header: Header) -> None:
            seen.append(reader.query("TopicA", "k1", 0, 1 << 62))
            real(file, header)

        monkeypatch.setattr(index_file.IndexFile, "store_header", look)
        service.cut(10, lambda physical_offset: NOON + physical_offset)
        assert seen == [list(range(9, -1, -1))]
        reader.close()
        service.close()

    def test_entries_that_never_reached_the_disk_are_no_entries(self, tmp_path: Path) -> None:
        service = service_of(tmp_path, 7, 100)
        puts = [("k1", 100 + number, NOON + number) for number in range(20)]
        service.put(*batch(puts))
        service.file(service.names[0]).entries[15:].view(np.uint8)[:] = 0
        service.cut(1000, lambda physical_offset: NOON + physical_offset - 100)
        assert service.query("TopicA", "k1", 0, 1 << 62) == list(range(113, 99, -1))
        assert service.file(service.names[0]).header.end_timestamp == NOON + 13
        service.close()

    def test_the_end_time_of_a_record_that_left_the_log_is_told_by_its_entry(self, tmp_path: Path) -> None:
        service = service_of(tmp_path, 7, 100)
        service.put(*batch([("k1", number, NOON + 1000 * number) for number in range(20)]))
        service.cut(10, lambda physical_offset: -1)
        assert service.file(service.names[0]).header.end_timestamp == NOON + 9000
        service.close()

    def test_slots_in_a_cycle_end_a_query_and_are_computed_anew(self, tmp_path: Path) -> None:
        service = service_of(tmp_path, 7, 100)
        service.put(*batch([("k1", number, NOON) for number in range(10)]))
        file = service.file(service.names[0])
        slot = key_hash("TopicA", "k1") % 7
        file.mapped.array[40 + 4 * slot : 44 + 4 * slot] = [0, 0, 0, 99]
        reader = IndexService(tmp_path, 7, 100)
        assert reader.query("TopicA", "k1", 0, 1 << 62) == []
        service.cut(1000, lambda physical_offset: NOON)
        assert reader.query("TopicA", "k1", 0, 1 << 62) == list(range(9, -1, -1))
        reader.close()
        service.close()

    def test_files_that_end_after_the_last_safe_time_are_dropped(self, service: IndexService) -> None:
        service.put(*batch([("k1", number, NOON + number) for number in range(12)]))
        assert service.drop_after(NOON + 4) == 2
        assert service.query("TopicA", "k1", 0, 1 << 62) == [4, 3, 2, 1, 0]
        service.sync()
