"""Cleaning: published first, recorded durably, slaves waited for, then unlinked; a full disk is named and recovers."""

import gc
import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from towline.allocate.cleaning import MANUAL_ROUNDS, MS_PER_HOUR, PRESSED_MS, STEP_MS, Cleaner
from towline.allocate.service import AllocateAgent
from towline.allocate.space import CHECK_EVERY_MS, DiskSpace
from towline.format.files.consume_queue import encode
from towline.format.files.durable import Durable
from towline.format.files.topics import RETENTION_MS, TopicConfig, TopicTable, topics_content
from towline.limits import MIB, PAGE
from towline.log.commitlog.cleaning import DOUBT_MS, DiskUse
from towline.log.commitlog.reserve_file import START_SHARE
from towline.log.files.config_file import ConfigFile
from towline.log.files.segment_files import segment_name
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.state.archived import probe_of, save_archived
from towline.log.state.durable_file import DurableFile
from towline.node.process.context import Node
from towline.places import Runtime, Store
from towline.runtime.doorbell import Doorbell
from towline.runtime.positions import Counter, Duty, Flag, Position, Positions
from towline.runtime.queue_ends import QueueEnds
from towline.runtime.settings import read_settings

SIZE = 16 * PAGE
NOON = 1_700_000_000_000
RESERVE = MIB


class Hands:
    """A clock and a disk that the test moves."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.wall = NOON
        self.ms = 1000
        self.hour = 12
        self.total, self.other = 100 * SIZE + RESERVE, 0  # `other`: bytes of other people's files
        self.mapped_ms = 0  # so long readers map what was unlinked
        self.seen: list[tuple[int, int]] = []  # when so much was used

    def now_ms(self) -> int:
        return self.wall

    def monotonic_ms(self) -> int:
        return self.ms

    def go(self, ms: int) -> None:
        self.wall += ms
        self.ms += ms

    def use(self, _: Path) -> DiskUse:
        files = [path for path in self.store.rglob("*") if path.is_file() and path.parent.name != "run"]
        used = self.other + sum(path.stat().st_size for path in files if path.stat().st_size >= SIZE)
        self.seen = [(ms, before) for ms, before in self.seen if self.ms - ms < self.mapped_ms] + [(self.ms, used)]
        used = max(before for _, before in self.seen)
        return DiskUse(used, self.total - used)


class Bench:
    """A store of `count` segments, all durable, and the allocate process's cleaner on it."""

    def __init__(self, root: Path, count: int = 10, **settings: object) -> None:
        self.store, runtime = Store(root / "store"), Runtime(root / "run")
        for directory in (self.store.commitlog, self.store.staging, self.store.config, runtime.root):
            directory.mkdir(parents=True)
        flags = {"mapped_file_size_commit_log": SIZE, "reserve_file_size": RESERVE, "delete_when": "04"}
        flags |= {"mapped_file_size_consume_queue": 2000} | settings
        checked = read_settings(None, {name: str(value) for name, value in flags.items()}, {})
        self.positions = Positions.create(runtime.positions, 7)
        self.ends = QueueEnds.create(runtime.queue_ends)
        self.hands = Hands(self.store.root)
        log = logging.getLogger("allocate-cleaning")
        self.node = Node(self.store, runtime, checked, self.positions, Duty.ALLOCATE, 7, log, self.hands)
        for base in range(0, count * SIZE, SIZE):
            self.make(base)
        self.durable_file = DurableFile(self.store.root)
        self.write(count * SIZE - 10)
        self.start()

    def delay(self, base: int, offset: int) -> None:
        """A message of delay level 1 stands in this segment, and those of its queue before `offset` are delivered."""
        ConfigFile(self.store.config / "delayOffset.json").save({"offsetTable": {"1": offset}})
        topic, at = "SCHEDULE_TOPIC_XXXX", base + 100
        files = ConsumeQueueFiles(self.store.consumequeue, self.node.settings.mapped_file_size_consume_queue, 1)
        files.write(topic, 0, 0, encode(at, 200, NOON))
        files.close()
        self.ends.move_all(*np.array([[self.ends.add(topic.encode(), 0, 0, 0, 0)], [1], [at + 200]]))

    def start(self) -> None:
        """A process that begins anew."""
        self.space = DiskSpace(self.node, self.hands.use)
        self.cleaner = Cleaner(self.node, self.space, lambda _: self.hands.hour)
        self.space.start()

    def make(self, base: int) -> None:
        (self.store.commitlog / segment_name(base)).write_bytes(bytes(SIZE))
        self.age(base, 0)

    def age(self, base: int, hours: float) -> None:
        modified = (self.hands.wall - int(hours * MS_PER_HOUR)) / 1000
        os.utime(self.store.commitlog / segment_name(base), (modified, modified))

    def archived(self, data_end: int) -> None:
        """What the job leaves in the store."""
        base = (data_end - 1) // SIZE * SIZE
        probe = probe_of(self.store.commitlog / segment_name(base), base, data_end)
        save_archived(self.store, SIZE, data_end, probe, "there")

    def write(self, appended: int, synced: int | None = None) -> None:
        self.positions.writer(Position.APPENDED, Duty.PUT).advance(appended)
        synced = appended if synced is None else synced
        self.record(flushed=synced, queues_durable=synced)

    def record(self, **facts: int) -> None:
        """What flush does in its rounds."""
        self.durable_file.save(replace(self.durable_file.state or Durable(), **facts))
        self.durable_file.close()

    def cycle(self, ms: int = 0) -> int:
        self.hands.go(ms)
        self.space.check(self.hands.ms)
        return self.cleaner.cycle(self.hands.ms)

    def settle(self, seconds: int = 20, *, flush: bool = True) -> None:
        for _ in range(seconds * 20):
            if flush:
                self.record(log_min=self.log_min)
            self.cycle(50)

    @property
    def log_min(self) -> int:
        return self.positions.get(Position.LOG_MIN)

    @property
    def left(self) -> list[int]:
        return sorted(int(path.name) // SIZE for path in self.store.commitlog.iterdir())

    @property
    def full(self) -> bool:
        return bool(self.positions.flags & Flag.DISK_FULL)


@pytest.fixture(autouse=True)
def gone() -> Iterator[None]:
    """Mappings of a test go with it."""
    yield
    gc.collect()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_nothing_goes_while_everything_is_young(bench):
    bench.settle()
    assert (bench.left, bench.log_min) == (list(range(10)), 0)


def test_old_segments_go_in_their_hour_after_the_minimum_was_published_and_recorded(bench):
    for base in (0, 1, 2, 4):
        bench.age(base * SIZE, 73)
    bench.cycle(20_000)
    assert bench.log_min == 0, "it is not the hour"
    bench.hands.hour = 4
    bench.cycle(20_000)
    assert bench.log_min == 3 * SIZE, "published first"
    bench.settle(flush=False)
    assert bench.left == list(range(10)), "flush has not recorded it"
    bench.record(log_min=3 * SIZE)
    seen = []
    while bench.left[0] < 3:
        bench.cycle(STEP_MS)
        seen.append(len(bench.left))
        assert len(seen) < 100
    assert max(before - after for before, after in pairwise(seen)) <= 1
    assert bench.left == [3, 4, 5, 6, 7, 8, 9]
    assert bench.log_min == 3 * SIZE


def test_what_is_not_delivered_keeps_its_segment_and_all_after_it_for_the_longest_delay(tmp_path, caplog):
    bench = Bench(tmp_path, timer_max_delay_sec=10 * 3600)
    for base in range(5):
        bench.age(base * SIZE, 81)
    bench.delay(2 * SIZE, 0)
    bench.hands.hour = 4
    bench.settle()
    assert bench.left == [2, 3, 4, 5, 6, 7, 8, 9]
    assert caplog.text.count("is expired; it is kept 10.0 h longer at most") == 1
    bench.age(2 * SIZE, 82)
    bench.settle()
    assert bench.left == [3, 4, 5, 6, 7, 8, 9], "nothing in the third waits, for all that is to come"


def test_what_is_delivered_keeps_nothing(bench):
    for base in range(5):
        bench.age(base * SIZE, 73)
    bench.delay(2 * SIZE, 1)
    bench.hands.hour = 4
    bench.settle()
    assert bench.left == [5, 6, 7, 8, 9]


def test_offsets_that_cannot_be_read_keep_everything_as_long(bench, caplog):
    bench.age(0, 73)
    (bench.store.config / "delayOffset.json").write_text("{")
    bench.hands.hour = 4
    bench.settle()
    assert bench.left == list(range(10))
    assert "no expired segment is removed before it must be" in caplog.text
    bench.age(0, 72 + 72)
    bench.settle()
    assert bench.left == list(range(1, 10))


def test_a_full_disk_waits_for_nothing_that_is_delayed(bench):
    bench.delay(0, 0)
    bench.hands.other = 92 * SIZE
    bench.settle()
    assert bench.left[0] > 0


class TestArchive:
    """With `keep_until_archived`."""

    @pytest.fixture
    def bench(self, tmp_path):
        bench = Bench(tmp_path, keep_until_archived=True)
        for base in range(0, 10 * SIZE, SIZE):
            bench.age(base, 100)
        bench.hands.hour = 4
        return bench

    def test_what_is_expired_stays_until_it_is_archived(self, bench, caplog):
        bench.settle()
        assert bench.left == list(range(10))
        assert "keep_until_archived" in caplog.text
        bench.archived(3 * SIZE - 100)
        bench.settle()
        assert bench.left == list(range(3, 10))
        bench.archived(5 * SIZE)
        bench.settle()
        assert bench.left == list(range(5, 10))
        assert bench.node.line.counter(Counter.FALLBACKS) == 0

    def test_a_limit_of_bytes_waits_too(self, tmp_path):
        bench = Bench(tmp_path, keep_until_archived=True, file_reserved_bytes=4 * SIZE)
        bench.archived(2 * SIZE)
        bench.settle()
        assert bench.left == list(range(2, 10))

    def test_a_full_disk_takes_what_it_must_and_that_is_said_and_counted(self, bench, caplog):
        bench.archived(SIZE)
        bench.hands.other = 75 * SIZE
        bench.settle()
        assert bench.left == list(range(3, 10))
        assert bench.node.line.counter(Counter.FALLBACKS) == 2
        assert caplog.text.count("although it is in no archive") == 2

    def test_another_log_than_was_archived_is_kept(self, bench):
        bench.archived(3 * SIZE)
        (bench.store.commitlog / segment_name(2 * SIZE)).write_bytes(b"x" * SIZE)
        bench.age(2 * SIZE, 100)
        bench.settle()
        assert bench.left == list(range(10))

    def test_a_file_that_cannot_be_read_keeps_everything(self, bench, caplog):
        ConfigFile(bench.store.config / "archived.json").save({"end": "all"})
        bench.settle()
        assert bench.left == list(range(10))
        assert "no segment counts as archived" in caplog.text

    def test_without_the_setting_nothing_waits(self, tmp_path):
        bench = Bench(tmp_path)
        bench.age(0, 100)
        bench.hands.hour = 4
        bench.settle()
        assert bench.left == list(range(1, 10))


class TestTopicsThatAreKeptLonger:
    """file_reserved_time is 72 hours; segment 0 is 200 hours old, segment 1 is 100."""

    @staticmethod
    def aged(bench, **hours):
        """Each topic with the hours that its messages are kept."""
        kept = {name: {RETENTION_MS: str(time * MS_PER_HOUR)} for name, time in hours.items()}
        topics = {name: TopicConfig(topic_name=name, attributes=attributes) for name, attributes in kept.items()}
        ConfigFile(bench.store.config / "topics.json").save(topics_content(TopicTable(topics=topics)))
        for number, hours_old in ((0, 200), (1, 100)):
            if number in bench.left:
                bench.age(number * SIZE, hours_old)
        bench.hands.hour = 4

    def test_keep_the_log_for_as_long(self, bench):
        self.aged(bench, short=1, long=150)
        bench.settle()
        assert bench.left == list(range(1, 10))

    def test_do_so_until_they_are_changed_or_gone(self, bench):
        self.aged(bench, long=300)
        bench.settle()
        assert bench.left == list(range(10))
        self.aged(bench, long=150)
        bench.settle()
        assert bench.left == list(range(1, 10))
        self.aged(bench)
        bench.settle()
        assert bench.left == list(range(2, 10))

    def test_lose_their_messages_to_a_full_disk_and_that_is_said(self, bench, caplog):
        self.aged(bench, longer=300, long=250, short=1)
        bench.hands.other = bench.hands.total - 20 * SIZE
        bench.settle()
        assert bench.left
        gone = [f"segment {segment_name(base * SIZE)} goes" for base in range(bench.left[0])]
        assert len(gone) > 2
        said = [row.getMessage() for row in caplog.records if "before the time of" in row.getMessage()]
        assert [sentence.partition(" when")[0] for sentence in said] == gone
        assert all("2 topics (long, longer): the disk is above" in sentence for sentence in said[:2])

    def test_lose_them_to_a_limit_of_bytes_too(self, tmp_path, caplog):
        bench = Bench(tmp_path, file_reserved_bytes=8 * SIZE)
        self.aged(bench, long=300)
        bench.settle()
        assert bench.left == list(range(2, 10))
        assert "(long): the log is above file_reserved_bytes" in caplog.text

    def test_whose_time_cannot_be_read_lose_nothing_by_age(self, bench, caplog):
        self.aged(bench)
        for name in ("topics.json", "topics.json.bak"):
            (bench.store.config / name).write_text("{")
        bench.settle()
        assert bench.left == list(range(10))
        assert caplog.text.count("how long topics are kept is unknown") == 1


def test_each_deletion_is_logged_with_its_name_its_reason_and_its_age(bench, caplog):
    bench.age(0, 75.5)
    bench.hands.hour = 4
    with caplog.at_level(logging.INFO):
        bench.settle(2)
    assert f"removed segment {segment_name(0)}, 75.5 h old: it is older than file_reserved_time" in caplog.text


def test_an_operator_may_ask_for_it_at_any_hour_and_is_heard_at_once(tmp_path):
    bench = Bench(tmp_path, 30, delete_file_batch_max=1)
    for number in range(25):
        bench.age(number * SIZE, 80)
    bench.settle(2)
    assert bench.left[0] == 0
    bench.store.run.mkdir()
    bench.store.clean.touch()
    bench.cycle(PRESSED_MS)
    assert not bench.store.clean.exists()
    bench.settle(60)
    assert bench.left[0] == MANUAL_ROUNDS, "so many rounds of one segment each"
    bench.store.clean.touch()
    bench.settle(60)
    assert bench.left[0] == 25, "and nothing that is young"


def test_deletions_keep_their_distance(tmp_path):
    bench = Bench(tmp_path, delete_commit_log_files_interval=700)
    bench.hands.hour = 4
    for base in range(5):
        bench.age(base * SIZE, 80)
    bench.cycle()
    bench.record(log_min=bench.log_min)
    times = []
    while bench.left[0] < 5:
        before = len(bench.left)
        bench.cycle(10)
        if len(bench.left) < before:
            times.append(bench.hands.ms)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(gaps) == 4
    assert all(700 <= gap <= 700 + STEP_MS for gap in gaps)


@pytest.mark.parametrize("short", ["flushed", "queues_durable"])
def test_what_is_not_synced_stays_whatever_the_disk_looks_like(bench, short):
    bench.record(**{short: 4 * SIZE - 1})
    bench.hands.other = 95 * SIZE
    bench.settle(60)
    assert bench.left[0] == 3


def test_the_segment_with_the_last_byte_stays(bench):
    bench.hands.other = 99 * SIZE
    bench.settle(60)
    assert bench.left == [9]
    bench.write(10 * SIZE)
    bench.settle(60)
    assert bench.left == [9], "it is full, and still holds the last byte"


class TestSettingsThatChange:
    """While the process runs."""

    def adjust(self, bench: Bench, **settings: object) -> None:
        bench.node.settings = bench.node.settings.model_copy(update=settings)
        bench.space.adjust()
        bench.cleaner.adjust()

    def test_a_shorter_time_counts_at_once(self, tmp_path):
        bench = Bench(tmp_path, file_reserved_time=72, delete_when="12")
        for base in range(0, 3 * SIZE, SIZE):
            bench.age(base, 50)
        bench.settle()
        assert bench.left[0] == 0
        self.adjust(bench, file_reserved_time=48)
        bench.settle(5)
        assert bench.left[0] == 3

    def test_another_hour_and_a_limit_of_bytes_count_as_well(self, tmp_path):
        bench = Bench(tmp_path, file_reserved_time=1)
        bench.age(0, 5)
        bench.settle()
        assert bench.left[0] == 0
        self.adjust(bench, delete_when="12")
        bench.settle(5)
        assert bench.left[0] == 1
        self.adjust(bench, file_reserved_bytes=4 * SIZE)
        bench.settle(5)
        assert len(bench.left) == 4

    def test_segments_wait_for_the_archive_from_then_on(self, tmp_path):
        bench = Bench(tmp_path, file_reserved_time=1, delete_when="12")
        self.adjust(bench, keep_until_archived=True)
        bench.age(0, 5)
        bench.settle()
        assert bench.left[0] == 0
        self.adjust(bench, keep_until_archived=False)
        bench.settle(5)
        assert bench.left[0] == 1

    def test_the_flag_of_a_full_disk_follows_the_level(self, tmp_path):
        bench = Bench(tmp_path, count=4, clean_file_forcibly_enable=False)
        bench.hands.other = 60 * SIZE
        bench.settle(1)
        assert not bench.full
        self.adjust(bench, disk_space_warning_level_ratio=50)
        assert bench.full
        self.adjust(bench, disk_space_warning_level_ratio=90)
        assert not bench.full


def test_a_limit_of_bytes_is_kept_at_any_hour_and_without_waiting_for_the_interval(tmp_path):
    bench = Bench(tmp_path, file_reserved_bytes=6 * SIZE)
    bench.settle(3)
    assert bench.left == [4, 5, 6, 7, 8, 9]
    for number in range(10, 14):
        bench.make(number * SIZE)
        bench.write(number * SIZE + 1)
        bench.positions.writer(Position.WANTED, Duty.PUT).advance(number * SIZE)
        bench.settle(1)
        assert bench.left == list(range(number - 5, number + 1))


def test_a_full_disk_gives_up_just_enough(tmp_path):
    bench = Bench(tmp_path, 20)
    bench.hands.other = 75 * SIZE  # 95 of 116: not above 85 percent
    bench.settle(5)
    assert len(bench.left) == 20
    bench.hands.other = bench.hands.total - 25 * SIZE
    bench.settle(30)
    percent = bench.hands.use(bench.store.root).percent
    assert 85 - 1 <= percent <= 85, percent


def test_blocks_that_come_back_late_take_no_more_segments_with_them(tmp_path):
    """A reader still maps what was unlinked, and the interval of looks is short."""
    bench = Bench(tmp_path, 20, clean_resource_interval=50, reserve_file_size=0)
    bench.hands.other = bench.hands.total - 30 * SIZE
    bench.hands.mapped_ms = 500
    needed = -(-bench.hands.use(bench.store.root).excess(85) // SIZE)
    changed_at = bench.hands.ms
    while bench.hands.ms < changed_at + 5000:
        before = len(bench.left)
        bench.record(log_min=bench.log_min)
        bench.cycle(50)
        if len(bench.left) < before:
            changed_at = bench.hands.ms
    assert 20 - len(bench.left) == needed


def test_without_forcible_cleaning_a_full_disk_takes_only_what_is_expired(tmp_path):
    bench = Bench(tmp_path, clean_file_forcibly_enable="false")
    bench.age(0, 80)
    bench.hands.other = 99 * SIZE
    bench.settle(30)
    assert bench.left == list(range(1, 10))
    assert bench.full


class TestSlaves:
    def slave(self, bench, appended, connected=True):
        bench.positions.slaves()[0].set(connected=connected, appended=appended, flushed=0)

    def doom(self, bench):
        bench.hands.hour = 4
        bench.age(0, 80)
        bench.age(SIZE, 80)

    def test_a_connected_slave_is_waited_for_until_it_has_the_segment(self, bench):
        self.doom(bench)
        self.slave(bench, SIZE - 1)
        bench.settle(30)
        assert (bench.left[0], bench.log_min) == (0, 2 * SIZE)
        self.slave(bench, SIZE)
        bench.settle(30)
        assert bench.left[0] == 1
        self.slave(bench, 2 * SIZE)
        bench.settle(1)
        assert bench.left[0] == 2

    def test_not_longer_than_the_forcible_time(self, tmp_path, caplog):
        bench = Bench(tmp_path, destroy_mapped_file_interval_forcibly=5_000)
        self.doom(bench)
        self.slave(bench, 0)
        bench.settle(4)
        assert bench.left[0] == 0
        bench.settle(2)
        assert bench.left[0] == 2
        assert "goes after 5000 ms, slave 0 has not got it yet" in caplog.text

    def test_not_for_one_that_has_gone(self, bench):
        self.doom(bench)
        self.slave(bench, 0, connected=False)
        bench.settle(2)
        assert bench.left[0] == 2


def test_a_process_that_begins_anew_finishes_what_was_published(bench):
    bench.hands.hour = 4
    for base in range(4):
        bench.age(base * SIZE, 80)
    bench.cycle()
    bench.record(log_min=bench.log_min)
    while bench.left[0] < 2:
        bench.cycle(STEP_MS)
    bench.start()
    bench.hands.hour = 12
    bench.settle(2)
    assert bench.left[0] == 4


def test_a_segment_that_cannot_be_removed_is_tried_again(tmp_path, caplog):
    bench = Bench(tmp_path, redelete_hanged_file_interval=3_000)
    bench.hands.hour = 4
    bench.age(0, 80)
    path = bench.store.commitlog / segment_name(0)
    path.unlink()
    path.mkdir()  # unlink of a directory fails, for root as well
    os.utime(path, (0, 0))
    bench.settle(2)
    assert "cannot be removed, it is tried again in 3000 ms" in caplog.text
    path.rmdir()
    path.write_bytes(bytes(SIZE))
    bench.settle(4)
    assert bench.left[0] == 1


def test_a_clock_that_jumps_makes_nothing_old(bench):
    bench.cycle()
    bench.hands.wall += 30 * 365 * 24 * MS_PER_HOUR
    bench.hands.hour = 4
    bench.settle(60)
    assert len(bench.left) == 10
    bench.hands.go(DOUBT_MS)
    bench.cycle(20_000)
    assert bench.log_min > 0, "an hour later the clock is believed"


class TestSpace:
    def test_above_the_warning_level_the_flag_is_up_and_below_it_comes_down(self, tmp_path):
        bench = Bench(tmp_path, clean_file_forcibly_enable="false")
        assert not bench.full
        bench.hands.other = 99 * SIZE
        bench.cycle(CHECK_EVERY_MS)
        assert bench.full
        bench.hands.other = 10 * SIZE
        bench.cycle(CHECK_EVERY_MS - 1)
        assert bench.full
        bench.cycle(1)
        assert not bench.full

    def test_the_reserve_is_made_given_up_when_little_is_left_and_made_again(self, tmp_path):
        bench = Bench(tmp_path, clean_file_forcibly_enable="false")
        reserve = bench.store.root / "reserve"
        assert reserve.stat().st_size == RESERVE
        bench.hands.other = bench.hands.total - 10 * SIZE - RESERVE - RESERVE + 1
        bench.cycle(CHECK_EVERY_MS)
        assert reserve.stat().st_size == RESERVE // START_SHARE
        bench.hands.other -= RESERVE
        bench.cycle(CHECK_EVERY_MS)
        assert reserve.stat().st_size < RESERVE, "not before there is plenty"
        bench.hands.other -= RESERVE
        bench.cycle(CHECK_EVERY_MS)
        assert reserve.stat().st_blocks * 512 >= RESERVE

    def test_none_is_kept_where_none_is_wanted(self, tmp_path):
        bench = Bench(tmp_path, reserve_file_size=0)
        bench.cycle(CHECK_EVERY_MS)
        assert not (bench.store.root / "reserve").exists()

    def test_a_segment_without_room_takes_the_oldest_with_it_and_not_one_more(self, tmp_path):
        bench = Bench(tmp_path, reserve_file_size=0, disk_space_warning_level_ratio=90)
        bench.hands.total = 16 * SIZE
        bench.hands.other = 3 * SIZE + 1  # 82 percent are used, and a segment more has no room
        assert bench.space.has_room(10 * SIZE), "with a byte less there would be"
        bench.hands.other = 5 * SIZE + 1

    def test_puts_are_refused_when_the_following_segment_has_no_room_not_for_the_one_after(self, tmp_path):
        bench = Bench(tmp_path, clean_file_forcibly_enable="false", reserve_file_size=0)
        bench.hands.total = 1000 * SIZE
        bench.positions.writer(Position.WANTED, Duty.PUT).advance(9 * SIZE)
        bench.space.failed(11 * SIZE)
        assert not bench.full
        bench.space.failed(10 * SIZE)
        assert bench.full
        bench.space.made()
        assert not bench.full


def test_the_agent_cleans_to_make_room_and_goes_on(tmp_path):
    """A disk of forty segments: the writer goes round and round, and is never kept from the next for long."""
    bench = Bench(tmp_path, 4, reserve_file_size=0)
    bench.hands.total = 40 * SIZE
    agent = AllocateAgent(bench.node)
    agent._space = DiskSpace(bench.node, bench.hands.use)
    agent._cleaner = Cleaner(bench.node, agent._space, lambda _: 12)
    bench.positions.writer(Position.ALLOCATED, Duty.ALLOCATE).advance(4 * SIZE)
    agent.on_start(Doorbell(bench.node.runtime.bell("allocate"), bench.node.line))
    for number in range(4, 100):
        bench.positions.writer(Position.WANTED, Duty.PUT).advance(number * SIZE)
        bench.write(number * SIZE + 1)
        began = bench.hands.ms
        while bench.full or bench.positions.get(Position.ALLOCATED) < (number + 2) * SIZE:
            bench.hands.go(20)
            bench.record(log_min=bench.log_min)
            agent.do_work()
            assert bench.hands.ms - began < 2000, number
        assert bench.hands.use(bench.store.root).percent <= 100, sorted(bench.store.root.rglob("*"))
    assert bench.log_min > 60 * SIZE
