"""Rebuilding queues and index by tasks: the bytes that reput, recovery and repair make, whatever happens meanwhile."""

import dataclasses
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from tests.closing import closed_afterwards
from tests.log.sound import look
from tests.log.stores import QUEUE_FILE, SEGMENT, SETTINGS, StoreMaker
from tests.reput.test_reput import Bench
from towline.errors import QueueGap, StoreTaken
from towline.format.files.consume_queue import SIZE
from towline.format.files.durable import Durable
from towline.format.files.topics import DeletedTopic, TopicTable, topics_content
from towline.format.record import record
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.queues.consume_queue_ext import is_address, opened
from towline.log.recovery.recovery import FoundLog, recover
from towline.log.repair.rebuild import Rebuild
from towline.log.repair.verify_report import Weight
from towline.log.state.durable_file import DurableFile
from towline.log.state.topics_file import TopicsConfig
from towline.node.supervise.recover import publish
from towline.pipeline import rebuild as job
from towline.pipeline import rebuild_tasks
from towline.pipeline.errors import AttemptsGoOn, IllegalOption, LogInPool, NotRebuilt, ScratchNotSeen
from towline.pipeline.rebuild import RebuildOptions, Rebuilt, rebuild, splits_of
from towline.pipeline.scratch import Scratch, fence, make_scratch
from towline.places import Store
from towline.runtime.queue_ends import QueueEnds
from towline.spark.errors import NotAStore
from towline.start import home

from .logs import DELAYS, DELAYS_MS, LOGS, PlainTasks, Sent, Writer
from .stores import shape, sound_node

Files = dict[str, bytes]
FIRST = 7  # number of each queue's first message: what was before has left the log


def prepared(root: Path) -> StoreMaker:
    maker = StoreMaker(root)
    shape(maker.store)
    return maker


def derived(root: Path) -> tuple[Files, list[bytes]]:
    """Queue files by name that hold anything, and the index files in order: their names are times."""
    queues, index = root / "consumequeue", root / "index"
    files = {str(path.relative_to(queues)): path.read_bytes() for path in queues.rglob("*") if path.is_file()}
    return files, [path.read_bytes() for path in sorted(index.iterdir())] if index.is_dir() else []


def run(store: Store, tasks: PlainTasks | None = None, **options: object) -> Rebuilt:
    return rebuild(RebuildOptions(store=str(store.root), **options), tasks or PlainTasks())


@pytest.fixture(autouse=True)
def _small_splits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each segment is a split; nobody leaves files open."""
    monkeypatch.setattr(job, "SPLIT_BYTES", SEGMENT // 8)
    yield from closed_afterwards()


class AtOnce(PlainTasks):
    """Each task runs twice, and all of them at the same time; the later result of each counts."""

    def run(self, what: str, work: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        with ThreadPoolExecutor(2 * len(parts)) as threads:
            return list(threads.map(work, [*parts, *parts]))[len(parts) :]


def by_reput(log: list[Sent], root: Path) -> tuple[Files, list[bytes]]:
    bench = Bench(root, message_delay_level=DELAYS)
    Writer(bench.maker, FIRST).send(*log)
    bench.publish(bench.maker.end)
    bench.work(bench.agent())
    return derived(bench.store.root)


def with_deleted(store: Store, end: int) -> None:
    """Topic0 was deleted behind the log's end, Topic1 later than the log says."""
    table = TopicTable(
        deleted={
            "Topic0": DeletedTopic(log_offset=end, floors={0: FIRST + 20, 1: FIRST + 3}),
            "Topic1": DeletedTopic(log_offset=end + 1, floors={0: FIRST + 20, 1: FIRST + 20}),
        }
    )
    store.config.mkdir(exist_ok=True)
    TopicsConfig(store.config / "topics.json").save(topics_content(table))


def by_recovery(log: list[Sent], root: Path) -> tuple[Files, list[bytes]]:
    """The machine crashes when half of it is dispatched, a quarter surely; recovery cuts, and reput goes on."""
    bench = Bench(root / "before", message_delay_level=DELAYS)
    writer = Writer(bench.maker, FIRST)
    writer.send(*log[: len(log) // 2])
    bench.publish(bench.maker.end)
    bench.work(bench.agent())
    bench.maker.durable(bench.maker.end, queues=[*writer.places, 0][len(log) // 4])
    recovered = recover(bench.store, SETTINGS)
    after = Bench(root / "after", message_delay_level=DELAYS)
    after.maker, after.store = bench.maker, bench.store
    publish(after.positions, QueueEnds.open(after.runtime.queue_ends, writable=True), recovered)
    writer.send(*log[len(log) // 2 :])
    after.publish(bench.maker.end)
    after.work(after.agent())
    return derived(bench.store.root)


def by_repair(maker: StoreMaker, root: Path) -> tuple[Files, list[bytes]]:
    reader = CommitLogReader(maker.store.commitlog, SEGMENT)
    reader.load()
    build = Rebuild(reader, SETTINGS, DELAYS_MS, root / "consumequeue", root / "index", maker.store.consumequeue)
    build.run(maker.base, maker.end, lambda _: None)
    reader.close()
    return derived(root)


class TestTheSameBytes:
    @settings(max_examples=12, deadline=None)
    @given(log=LOGS)
    def test_as_reput_and_repair_whatever_the_log_holds(
        self, tmp_path_factory: pytest.TempPathFactory, log: list[Sent]
    ) -> None:
        root = tmp_path_factory.mktemp("same")
        maker = prepared(root / "job")
        Writer(maker, FIRST).send(*log)
        expected = by_reput(log, root / "reput")
        assert by_recovery(log, root / "recovery") == expected
        assert by_repair(maker, root / "repair") == expected
        done = run(maker.store)
        assert derived(maker.root) == expected
        assert done.queues == sorted(done.queues)

    def test_over_many_segments_files_and_kinds_of_records(self, tmp_path: Path) -> None:
        log = [Sent("plain", n % 6, 300, ("k", f"k{n}"), "red") for n in range(400)]
        log[100] = Sent("lost", 1, 0, count=20)
        log[500:500] = [Sent(kind, 3, 300, ("x",)) for kind in ("half", "rollback", "commit", "delayed", "lost")]
        maker = prepared(tmp_path / "job")
        Writer(maker, FIRST).send(*log)
        expected = by_reput(log, tmp_path / "reput")
        assert len(expected[0]) > 10
        assert len(expected[1]) > 10
        for tasks in (PlainTasks(), PlainTasks(doubled=True), PlainTasks(parallel=1)):
            done = run(maker.store, tasks)
            assert derived(maker.root) == expected
        assert done.records == len(log)
        assert done.index_files == len(expected[1])

    def test_queues_of_deleted_topics_begin_where_reput_lets_them_begin(self, tmp_path: Path) -> None:
        log = [Sent("plain", n % 6, 300) for n in range(240)]
        bench = Bench(tmp_path / "reput", message_delay_level=DELAYS)
        Writer(bench.maker, FIRST).send(*log)
        with_deleted(bench.store, bench.maker.end)
        bench.publish(bench.maker.end)
        bench.work(bench.agent())
        maker = prepared(tmp_path / "job")
        Writer(maker, FIRST).send(*log)
        with_deleted(maker.store, maker.end)
        run(maker.store)
        files, _ = derived(maker.root)
        assert derived(bench.store.root)[0] == files
        assert f"Topic0/0/{0:020d}" not in files
        assert f"Topic1/1/{0:020d}" in files

    def test_tasks_begin_to_write_back_what_is_large(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        begun: dict[tuple[str, int], int] = {}
        begin = ConsumeQueueFiles.begin_write_back

        def note(files: ConsumeQueueFiles, topic: str, queue_id: int, first: int, end: int) -> None:
            begun[topic, queue_id] = begun.get((topic, queue_id), 0) + end - first
            begin(files, topic, queue_id, first, end)

        monkeypatch.setattr(ConsumeQueueFiles, "begin_write_back", note)
        monkeypatch.setattr(rebuild_tasks, "WRITE_BACK_MIN", 10 * SIZE)
        log = [Sent("plain", 1 if n == 5 else 0, 300) for n in range(40)]
        maker = prepared(tmp_path / "job")
        Writer(maker, FIRST).send(*log)
        done = run(maker.store)
        assert derived(maker.root) == by_reput(log, tmp_path / "reput")
        assert done.records == 40
        assert list(begun) == [("Topic0", 0)]
        assert 10 <= begun["Topic0", 0] <= 39

    def test_when_all_tasks_run_twice_at_once(self, maker: StoreMaker) -> None:
        wanted = derived(maker.root)
        run(maker.store, AtOnce())
        assert derived(maker.root) == wanted

    def test_a_queue_with_extension_units_holds_the_hashes_that_stand_in_them(self, tmp_path: Path) -> None:
        ext = {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 400}
        bench = Bench(tmp_path, message_delay_level=DELAYS, **ext)
        shape(bench.store)
        log = [Sent("plain", n % 6, 300, ("k",), "red" if n % 2 else "blue") for n in range(300)]
        Writer(bench.maker, FIRST).send(*log)
        bench.publish(bench.maker.end)
        bench.work(bench.agent())
        for path in bench.store.index.iterdir():
            path.unlink()
        before = resolved(bench.store)
        run(bench.store)
        assert not bench.store.consumequeue_ext.exists()
        assert derived(bench.store.root) == by_reput(log, tmp_path / "plain")
        assert resolved(bench.store) == before
        assert not any(row.weight for row in look(bench.maker).findings.rows)


def resolved(store: Store) -> dict[tuple[str, int], list[tuple[int, ...]]]:
    """Every entry of every queue, with the hash of its tag where it leads to a unit."""
    files, units = ConsumeQueueFiles(store.consumequeue, QUEUE_FILE, 8), opened(store.consumequeue_ext, 8)
    found: dict[tuple[str, int], list[tuple[int, ...]]] = {}
    for topic, queue_id in files.list_queues():
        entries = np.concatenate(
            [files.raw(topic, queue_id, base // 20, QUEUE_FILE // 20) for base in files.bases(topic, queue_id)]
        )
        codes = entries["tags_code"].astype(np.int64)
        if units is not None:
            addressed = np.flatnonzero(is_address(codes))
            codes[addressed] = units.read(topic, queue_id, codes[addressed], 0).tags_codes
        rows = zip(entries["physical_offset"].tolist(), entries["record_size"].tolist(), codes.tolist(), strict=True)
        found[topic, queue_id] = list(rows)
    return found


# --- what goes wrong


@pytest.fixture
def maker(tmp_path: Path) -> StoreMaker:
    return sound_node(tmp_path / "store")


def everything(maker: StoreMaker) -> Files:
    """All but the lock, which says who has looked last."""
    return {
        str(path.relative_to(maker.root)): path.read_bytes()
        for path in maker.root.rglob("*")
        if path.is_file() and path.name != "lock"
    }


class Died(Exception):
    """Stands for kill -9."""


class TestWhatStoodThere:
    def test_is_kept_and_the_store_is_sound_with_all_of_it_marked_as_durable(self, maker: StoreMaker) -> None:
        before = derived(maker.root)
        done = run(maker.store)
        assert derived(maker.root) == before
        assert look(maker).weight is Weight.NOTE
        assert [derived_in(Path(path)) for path in done.kept] == [before[0], dict(enumerate(before[1]))]
        state = DurableFile(maker.root).load()
        assert state is not None
        assert (state.flushed, state.queues_durable, state.log_min) == (maker.end, maker.end, 0)
        assert not any(maker.store.staging.iterdir())

    def test_is_removed_where_that_is_asked_for(self, maker: StoreMaker) -> None:
        before = derived(maker.root)
        assert run(maker.store, old="remove").kept == []
        assert derived(maker.root) == before
        assert not any(maker.store.diverged.iterdir())

    def test_may_be_damaged_or_gone(self, maker: StoreMaker) -> None:
        before = derived(maker.root)
        shutil.rmtree(maker.store.index)
        for path in (maker.store.consumequeue / "TopicA" / "0").iterdir():
            path.write_bytes(b"\xff" * QUEUE_FILE)
        shutil.rmtree(maker.store.consumequeue / "TopicB")
        run(maker.store)
        assert derived(maker.root) == before
        assert look(maker).weight is Weight.NOTE

    def test_stays_where_only_the_other_part_is_wanted(self, maker: StoreMaker) -> None:
        before = derived(maker.root)
        shutil.rmtree(maker.store.index)
        shutil.rmtree(maker.store.consumequeue)
        run(maker.store, parts="queues")
        assert derived(maker.root) == (before[0], [])
        run(maker.store, parts="index")
        assert derived(maker.root) == before

    def test_of_a_real_broker_gets_no_state_files_of_ours(self, maker: StoreMaker) -> None:
        for name in ("durable", "identity.json"):
            (maker.root / name).unlink()
        before = derived(maker.root)
        run(maker.store)
        assert derived(maker.root) == before
        assert not maker.store.durable.exists()

    def test_tells_the_number_of_queues_of_which_the_log_holds_nothing(self, maker: StoreMaker) -> None:
        directory = maker.store.consumequeue / "TopicC" / "3"
        directory.mkdir(parents=True)
        old = maker.records[0]
        shutil.copy(maker.store.consumequeue / "TopicA" / "0" / f"{0:020d}", directory / f"{QUEUE_FILE * 4:020d}")
        maker.path(0).unlink()
        DurableFile(maker.root).save(
            Durable(flushed=maker.end, segment_base=2 * SEGMENT, queues_durable=maker.end, log_min=SEGMENT)
        )
        done = run(maker.store)
        (carried,) = [queue for queue in done.queues if queue.name == "TopicC"]
        assert (carried.first, carried.end - carried.first) == (4 * 16, 16)
        assert old.at < SEGMENT <= min(queue.at for queue in done.queues if queue.name != "TopicC")
        assert look(maker).weight is Weight.NOTE

    def test_of_a_deleted_topic_goes_as_reput_removes_it(self, maker: StoreMaker) -> None:
        table = TopicTable(deleted={"TopicA": DeletedTopic(log_offset=maker.records[-1].at, floors={0: 40, 1: 3})})
        TopicsConfig(maker.store.config / "topics.json").save(topics_content(table))
        run(maker.store)
        files = ConsumeQueueFiles(maker.store.consumequeue, QUEUE_FILE, 8)
        assert files.bases("TopicA", 0)[0] == 40 // 16 * QUEUE_FILE
        assert files.bases("TopicA", 1)[0] == 0


def derived_in(directory: Path) -> dict[object, bytes]:
    """Files by name below a directory of queues; index files by their place."""
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    if directory.name.startswith("index"):
        return {number: path.read_bytes() for number, path in enumerate(paths)}
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


class TestARefusal:
    """Leaves the store as it was."""

    def check(self, maker: StoreMaker, error: type[Exception], match: str, **options: object) -> None:
        before = everything(maker)
        with pytest.raises(error, match=match):
            run(maker.store, **options)
        assert everything(maker) == before
        assert not list(maker.store.staging.glob("*"))

    def replace(self, maker: StoreMaker, number: int, queue_offset: int) -> None:
        stored = maker.records[number]
        made = dataclasses.replace(record.decode(stored.data), queue_offset=queue_offset)
        maker.write(stored.at, record.encode(made))

    def test_while_a_node_holds_the_store(self, maker: StoreMaker) -> None:
        child = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(maker.store.lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        with child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"held\n"
            with pytest.raises(StoreTaken, match=str(child.pid)):
                run(maker.store)
            child.communicate(b"")
        run(maker.store)

    @pytest.mark.parametrize("number", [150, 290])
    def test_of_a_number_that_is_missing_inside_of_a_split(self, maker: StoreMaker, number: int) -> None:
        due = maker.records[number].queue_offset
        self.replace(maker, number, due + 5)
        self.check(maker, NotRebuilt, f"is number {due + 5} of queue .*, where number {due} is due")

    def test_of_a_number_that_is_missing_between_two_splits(self, maker: StoreMaker) -> None:
        first = next(n for n, stored in enumerate(maker.records) if stored.at >= SEGMENT)
        self.replace(maker, first, 900)
        self.check(maker, NotRebuilt, "is number .* of queue .*, where number 901 is due")

    def test_of_a_number_that_two_records_have_within_a_split(self, maker: StoreMaker) -> None:
        twice = maker.records[96].queue_offset
        for number in range(100, 300, 4):
            self.replace(maker, number, maker.records[number].queue_offset - 1)
        self.check(maker, NotRebuilt, f"is number {twice} of queue 0 of TopicA, where number")

    def test_of_a_number_that_records_of_two_splits_have(self, maker: StoreMaker) -> None:
        later = [n for n, stored in enumerate(maker.records) if stored.at >= SEGMENT]
        for place, number in enumerate(later):
            self.replace(maker, number, place // 4)
        self.check(maker, QueueGap, "is number 0 of queue 0 of TopicA, where number .* is due")

    def test_of_a_record_that_is_not_whole(self, maker: StoreMaker) -> None:
        maker.write(maker.records[10].at + 4, b"\0")
        self.check(maker, NotRebuilt, f"{0:020d} byte {maker.records[10].at}.*MAGIC")

    def test_while_a_restore_has_not_ended(self, maker: StoreMaker) -> None:
        maker.store.restoring.write_text("{}")
        self.check(maker, NotAStore, "has not ended")

    def test_of_a_log_whose_end_a_killed_node_left_in_memory(
        self, maker: StoreMaker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(job, "bytes_in_pool", lambda runtime: 4096)
        self.check(maker, LogInPool, "4096 bytes of the log")

    def test_of_an_index_whose_sizes_nobody_knows(self, maker: StoreMaker) -> None:
        maker.store.settings.unlink()
        with pytest.raises(IllegalOption, match="give --config"):
            run(maker.store, parts="index")

    def test_of_a_machine_that_does_not_see_the_files(self, maker: StoreMaker, monkeypatch: pytest.MonkeyPatch) -> None:
        make = job.make_scratch

        def moved(parent: Path, name: str) -> Scratch:
            return dataclasses.replace(make(parent, name), token="of another run")

        monkeypatch.setattr(job, "make_scratch", moved)
        with pytest.raises(ScratchNotSeen, match="does not see"):
            run(maker.store)


HOLDER = """
import sys
from pathlib import Path
from towline.runtime.locks import StoreLock
lock = StoreLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


KILLED = """
import os, signal, sys
from towline.pipeline import rebuild as job
from tests.log.stores import SEGMENT
from tests.pipeline.logs import PlainTasks
job.SPLIT_BYTES = SEGMENT // 8
def die(number):
    if number == 0:
        os.kill(os.getpid(), signal.SIGKILL)
job.rebuild(job.RebuildOptions(store=sys.argv[1]), PlainTasks(before=die))
"""


class TestAKilledRun:
    def test_by_kill_9_changes_nothing_and_a_repeat_finishes(self, maker: StoreMaker) -> None:
        before, wanted = everything(maker), derived(maker.root)
        killed = subprocess.run([sys.executable, "-c", KILLED, str(maker.root)], cwd=home(), check=False)
        assert killed.returncode == -signal.SIGKILL
        (left,) = maker.store.staging.iterdir()
        assert any((left / "consumequeue").rglob("0*"))
        assert {name: data for name, data in everything(maker).items() if left.name not in name} == before
        run(maker.store)
        assert derived(maker.root) == wanted
        assert not any(maker.store.staging.iterdir())

    @pytest.mark.parametrize("at", [0, 1, 2])
    def test_between_tasks_changes_nothing_and_a_repeat_finishes(self, maker: StoreMaker, at: int) -> None:
        before, wanted = everything(maker), derived(maker.root)

        def die(number: int) -> None:
            if number == at:
                raise Died

        with pytest.raises(Died):
            run(maker.store, PlainTasks(before=die))
        assert everything(maker) == before
        run(maker.store)
        assert derived(maker.root) == wanted

    def test_that_left_its_directory_behind_is_cleared_away_by_the_next(
        self, maker: StoreMaker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before, wanted = everything(maker), derived(maker.root)
        with monkeypatch.context() as patched:
            patched.setattr(job, "_leave", lambda scratch: None)
            patched.setattr(job, "_exchange", lambda *_: (_ for _ in ()).throw(Died))
            with pytest.raises(Died):
                run(maker.store)
        (left,) = maker.store.staging.iterdir()
        assert {name: data for name, data in everything(maker).items() if left.name not in name} == before
        recover(maker.store, SETTINGS)
        run(maker.store)
        assert derived(maker.root) == wanted
        assert not any(maker.store.staging.iterdir())

    @pytest.mark.parametrize("step", ["swapped out consumequeue", "swap index", "swapped out index"])
    def test_between_the_exchanges_leaves_a_store_that_starts_and_that_a_repeat_finishes(
        self, maker: StoreMaker, monkeypatch: pytest.MonkeyPatch, step: str
    ) -> None:
        wanted = derived(maker.root)
        place = job.replace_directory

        def dying(made: Path, target: Path, take: Callable[[Path], object]) -> None:
            def note(said: str) -> None:
                if said == step:
                    raise Died

            place(made, target, take, note)

        with monkeypatch.context() as patched:
            patched.setattr(job, "replace_directory", dying)
            patched.setattr(job, "_leave", lambda scratch: None)
            with pytest.raises(Died):
                run(maker.store)
        assert derived(maker.root) == wanted
        recover(maker.store, SETTINGS)
        assert derived(maker.root) == wanted
        run(maker.store)
        assert derived(maker.root) == wanted


class TestTheFence:
    def test_waits_for_attempts_and_lets_none_begin(self, tmp_path: Path) -> None:
        scratch = make_scratch(tmp_path, "x")
        attempt = scratch.attempt()
        own = attempt.__enter__()
        assert own.is_dir()
        with pytest.raises(AttemptsGoOn, match="still write"):
            fence(scratch, 0.05)
        attempt.__exit__(None, None, None)
        assert not own.exists()
        fence(scratch, 5)
        with pytest.raises(ScratchNotSeen), scratch.attempt():
            pass


class TestSplits:
    def found(self, log_min: int, end: int) -> FoundLog:
        return FoundLog(log_min, end, None)

    def test_are_whole_segments_and_end_where_the_log_does(self) -> None:
        splits = splits_of(self.found(SEGMENT, 4 * SEGMENT + 10), SEGMENT, 2)
        assert [(split.start, split.end) for split in splits] == [
            (SEGMENT, 2 * SEGMENT),
            (2 * SEGMENT, 3 * SEGMENT),
            (3 * SEGMENT, 4 * SEGMENT),
            (4 * SEGMENT, 4 * SEGMENT + 10),
        ]

    @pytest.mark.parametrize(
        ("segments", "parallel", "sizes"),
        [
            (100, 2, [10] * 10),
            (8, 4, [2] * 4),
            (3, 2, [2, 1]),
            (31, 2, [8, 8, 8, 7]),
            (33, 2, [9, 8, 8, 8]),
            (65, 2, [11, 11, 11, 11, 11, 10]),
            (5, 16, [1] * 5),
        ],
    )
    def test_give_all_who_work_at_once_as_much(
        self, monkeypatch: pytest.MonkeyPatch, segments: int, parallel: int, sizes: list[int]
    ) -> None:
        monkeypatch.setattr(job, "SPLIT_BYTES", 10 * SEGMENT)
        splits = splits_of(self.found(0, segments * SEGMENT), SEGMENT, parallel)
        assert [(split.end - split.start) // SEGMENT for split in splits] == sizes

    def test_of_an_empty_log_are_none(self, maker: StoreMaker, tmp_path: Path) -> None:
        assert splits_of(self.found(0, 0), SEGMENT, 2) == ()
        empty = prepared(tmp_path / "empty")
        assert run(empty.store).queues == []
