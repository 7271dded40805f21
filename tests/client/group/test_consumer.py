"""Members of a group against a node in a thread (`group_standin`), over real links."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.client.standin import STORE_TIME
from towline.client.columns import Columns
from towline.client.errors import AskRefused, ClientClosed, DamagedMessage
from towline.client.group.consumer import GroupConsumer
from towline.client.group.errors import (
    IllegalPlace,
    MemberTaken,
    NotAssigned,
    NotInHand,
    OffsetsFileDamaged,
    OffsetsFileTaken,
    OffsetsNotSaved,
)
from towline.client.group.message import GroupMessage
from towline.client.group.queue import GroupQueue
from towline.client.group.subscription import EVERYTHING
from towline.client.link.rpc import Reply
from towline.errors import NoAnswer, UnknownTopic

from .standin import DEADLINE_S, GroupNode, bodies_of, fill, member, read, settle


@pytest.fixture
def node(tmp_path: Path) -> Iterator[GroupNode]:
    made = GroupNode(tmp_path, {"t": 4, "one": 1})
    made.start()
    yield made
    made.stop()


class TestOneMember:
    def test_every_message_comes_once_and_in_order(self, node: GroupNode):
        bodies = fill(node, 50)
        with member(node, max_count=7) as consumer:
            assert bodies_of(read(consumer, 50)) == bodies
            assert consumer.assignment() == {("one", 0): 50}
        assert node.group.offsets["one", 0] == 50
        assert node.group.members == {}

    def test_one_by_one_each_message_is_finished_when_the_next_is_asked_for(self, node: GroupNode):
        fill(node, 10)
        with member(node, max_count=4) as consumer:
            seen = [message.queue_offset for message, _ in zip(consumer, range(6), strict=False)]
        assert seen == [0, 1, 2, 3, 4, 5]
        assert node.group.offsets["one", 0] in (6, 7)  # zip asks for one more before it looks at the range
        with member(node) as consumer:
            assert read(consumer, 1)[0].queue_offset == node.group.offsets["one", 0]

    def test_a_loop_that_is_left_has_finished_what_it_saw_and_not_the_rest_of_the_delivery(self, node: GroupNode):
        fill(node, 10)
        with member(node) as consumer:
            for message in consumer:
                if message.queue_offset == 3:
                    break
        assert node.group.offsets["one", 0] == 4

    def test_after_a_loop_that_is_left_a_poll_goes_on_behind_it(self, node: GroupNode):
        fill(node, 10)
        with member(node) as consumer:
            for message in consumer:
                if message.queue_offset == 3:
                    break
            assert [message.queue_offset for message in read(consumer, 6)] == [4, 5, 6, 7, 8, 9]

    def test_what_is_in_hand_when_the_application_fails_comes_again(self, node: GroupNode):
        fill(node, 10)

        def handle_three(consumer: GroupConsumer) -> None:
            with consumer:
                for message in consumer:
                    if message.queue_offset == 3:
                        raise RuntimeError("no")

        with pytest.raises(RuntimeError):
            handle_three(member(node))
        assert node.group.offsets["one", 0] == 3
        with member(node) as consumer:
            assert read(consumer, 7)[0].queue_offset == 3

    def test_columns_hold_the_same_messages(self, node: GroupNode):
        bodies = fill(node, 20)
        found: list[bytes] = []
        with member(node, max_count=6) as consumer:
            for columns in consumer.batches():
                found += columns.bodies()
                if len(found) >= 20:
                    break
        assert found == bodies

    def test_a_new_group_starts_where_it_is_told_and_a_known_one_where_it_stood(self, node: GroupNode):
        fill(node, 5)
        with member(node, start="last") as consumer:
            settle(consumer, until=lambda: consumer.assignment() == {("one", 0): 5})
        fill(node, 2)
        with member(node, start="first") as consumer:
            assert [message.queue_offset for message in read(consumer, 2)] == [5, 6]

    def test_offsets_are_committed_by_the_clock(self, node: GroupNode):
        fill(node, 3)
        with member(node, commit_interval_ms=20) as consumer:
            read(consumer, 3)
            assert consumer.poll(10) == []  # the three are finished
            node.wait_for(lambda: node.group.offsets["one", 0] == 3)

    def test_manual_commits_are_the_only_ones(self, node: GroupNode):
        fill(node, 9)
        with member(node, auto_commit=False, commit_interval_ms=10, max_count=3) as consumer:
            read(consumer, 9)
            assert node.group.offsets["one", 0] == 0
            consumer.commit()
            assert node.group.offsets["one", 0] == 9
            more = fill(node, 3)
            found = read(consumer, 3)
            assert bodies_of(found) == more
            consumer.commit(found[1])
            assert node.group.offsets["one", 0] == 11
        assert node.group.offsets["one", 0] == 11

    def test_a_worker_commits_what_another_thread_polled(self, node: GroupNode):
        fill(node, 9)
        with member(node, auto_commit=False, max_count=3) as consumer, ThreadPoolExecutor(1) as worker:
            found = read(consumer, 9)
            for number in (1, 4, 8):
                worker.submit(consumer.commit, found[number]).result(DEADLINE_S)
                assert node.group.offsets["one", 0] == number + 1
            worker.submit(consumer.commit, found[0]).result(DEADLINE_S)
            assert node.group.offsets["one", 0] == 9, "it was committed before, and nothing goes back"

    def test_a_message_whose_queue_was_moved_since_is_not_committed_and_the_caller_is_told(self, node: GroupNode):
        fill(node, 9)
        with member(node, auto_commit=False) as consumer:
            found = read(consumer, 9)
            consumer.seek("one", 0, 3)
            with pytest.raises(NotInHand, match="at 8 of queue 0 of one"):
                consumer.commit(found[8])
            again = read(consumer, 6)
            consumer.commit(again[0])
            assert node.group.offsets["one", 0] == 4

    @pytest.mark.parametrize("offset", [-1, 2**63], ids=["negative", "beyond what a file can hold"])
    def test_an_offset_that_cannot_be_is_refused_where_it_is_sought(self, node: GroupNode, offset: int):
        fill(node, 2)
        with member(node) as consumer:
            read(consumer, 2)
            with pytest.raises(IllegalPlace, match="has no offset"):
                consumer.seek("one", 0, offset)
        assert node.group.offsets["one", 0] == 2

    def test_only_wanted_tags_come_and_the_others_are_finished_too(self, node: GroupNode):
        for tag in ("Aa", "BB", "c"):
            fill(node, 3, tags=tag)
        with member(node, {"one": "BB || x"}) as consumer:
            assert [message.tags for message in read(consumer, 3)] == ["BB"] * 3
            settle(consumer, until=lambda: consumer.assignment() == {("one", 0): 9})
        assert node.group.offsets["one", 0] == 9

    def test_seek_pause_and_resume(self, node: GroupNode):
        fill(node, 6)
        with member(node) as consumer:
            read(consumer, 6)
            consumer.seek("one", 0, 4)
            assert [message.queue_offset for message in read(consumer, 2)] == [4, 5]
            consumer.seek_to_time(STORE_TIME + 3_000)
            assert [message.queue_offset for message in read(consumer, 3)] == [3, 4, 5]
            consumer.pause()
            fill(node, 1)
            assert consumer.poll(100) == []
            consumer.resume(("one", 0))
            assert [message.queue_offset for message in read(consumer, 1)] == [6]
            with pytest.raises(NotAssigned):
                consumer.seek("one", 7, 0)

    def test_a_full_queue_does_not_keep_the_others_waiting(self, node: GroupNode):
        fill(node, 200, "t", 0)
        fill(node, 1, "t", 3)
        with member(node, "t", max_count=10) as consumer:
            queues: list[int] = []
            while 3 not in queues:
                queues += [message.queue_id for message in consumer.poll(1_000)]
        assert queues.count(0) <= 60

    def test_memory_is_bounded_by_the_size_of_the_pulls(self, node: GroupNode):
        with member(node, "t", buffer_bytes=480 << 10) as consumer:
            settle(consumer, until=lambda: len(node.pulled) >= 4)
        assert {pull.max_bytes for pull in node.pulled} == {40 << 10}  # 4 queues, 3 answers each

    def test_reading_goes_on_after_a_restart_of_the_node(self, node: GroupNode):
        bodies = fill(node, 10)
        with member(node, max_count=3) as consumer:
            found = read(consumer, 3)
            node.stop()
            node.lose_members()
            node.start()
            found += read(consumer, 7)
            assert consumer.members == [consumer.member]
        assert bodies_of(found) == bodies
        assert node.group.offsets["one", 0] == 10

    def test_what_a_node_had_not_written_down_before_it_died_is_committed_again(self, node: GroupNode):
        fill(node, 10)
        with member(node, commit_interval_ms=50) as consumer:
            read(consumer, 10)
            settle(consumer, until=lambda: node.group.offsets["one", 0] == 10)
            node.stop()
            node.lose_members()
            node.group.offsets["one", 0] = 4
            node.start()
            settle(consumer, until=lambda: node.group.offsets["one", 0] == 10)

    def test_a_queue_that_is_ours_again_before_it_was_given_back_keeps_its_lock(self, node: GroupNode):
        consumer = member(node, ordered=True)
        consumer._node_groups.all[0].buffer.queues["one", 0] = GroupQueue("one", 0, EVERYTHING)
        asked = list(consumer._node_groups.all[0].member._return_queues([("one", 0), ("one", 1)], {}))
        assert [question.facts["queues"] for question in asked] == [[["one", 1]]]
        consumer.close()

    def test_what_cannot_be_read_is_not_passed_over_unless_somebody_seeks(self, node: GroupNode):
        fill(node, 4)
        queue = node.queues["one", 0]
        sound, queue[1] = queue[1], queue[1][:4] + bytes(4) + queue[1][8:]
        with member(node, max_count=1) as consumer:
            read(consumer, 1)
            for _ in range(2):
                with pytest.raises(DamagedMessage, match=r"message 1 of queue 0 of one, at byte 141 .*MAGICCODE"):
                    read(consumer, 1)
            consumer.seek("one", 0, 2)
            assert [message.queue_offset for message in read(consumer, 2)] == [2, 3]
            queue[1] = sound
            consumer.seek("one", 0, 1)
            assert [message.queue_offset for message in read(consumer, 3)] == [1, 2, 3]

    def test_nobody_there_is_no_answer(self, tmp_path: Path):
        consumer = GroupConsumer(f"ipc://{tmp_path}/nobody", "g", "t", timeout_ms=200)
        with consumer, pytest.raises(NoAnswer):
            consumer.poll(60_000)

    def test_a_closed_consumer_says_so(self, node: GroupNode):
        consumer = member(node)
        consumer.close()
        with pytest.raises(ClientClosed):
            consumer.poll(0)

    def test_an_unknown_topic_is_refused(self, node: GroupNode):
        with member(node, "unknown") as consumer, pytest.raises(UnknownTopic):
            consumer.poll(60_000)

    def test_a_refusal_of_the_group_is_told(self, node: GroupNode):
        node.refusals["group_join"] = "CONSUME_DISABLED"
        with member(node) as consumer:
            with pytest.raises(AskRefused, match="CONSUME_DISABLED"):
                consumer.poll(60_000)
            del node.refusals["group_join"]
            fill(node, 1)
            assert len(read(consumer, 1)) == 1

    @pytest.mark.parametrize(
        "settings",
        [{"start": "middle"}, {"model": "x"}, {"strategy": "x"}, {"model": "broadcasting"}, {"topics": []}],
        ids=["start", "model", "strategy", "no offsets file", "no topic"],
    )
    def test_settings_that_cannot_be_are_refused(self, settings: dict[str, Any]):
        with pytest.raises(ValueError, match=r"start|model|strategy|offsets_file|topic"):
            GroupConsumer("tcp://127.0.0.1:1", "g", **({"topics": "t"} | settings))


class TestSharing:
    def test_two_members_share_the_queues_and_nothing_comes_twice(self, node: GroupNode):
        with member(node, "t", member="a") as a, member(node, "t", member="b") as b:
            share = {"a": {("t", 0), ("t", 1)}, "b": {("t", 2), ("t", 3)}}
            settle(a, b, until=lambda: set(a.assignment()) == share["a"] and set(b.assignment()) == share["b"])
            for queue_id in range(4):
                fill(node, 5, "t", queue_id)
            assert {message.queue_id for message in read(a, 10)} == {0, 1}
            assert {message.queue_id for message in read(b, 10)} == {2, 3}
            assert a.members == ["a", "b"]

    def test_by_circle_the_queues_are_dealt_out(self, node: GroupNode):
        settings = {"strategy": "circle"}
        with member(node, "t", member="a", **settings) as a, member(node, "t", member="b", **settings) as b:
            settle(a, b, until=lambda: set(b.assignment()) == {("t", 1), ("t", 3)} and len(a.assignment()) == 2)

    def test_a_queue_that_is_given_away_goes_on_where_it_was_left(
        self, node: GroupNode, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr("towline.client.group.member.HAND_OVER_S", 1.0)  # it surely commits in this time
        for queue_id in range(4):
            fill(node, 5, "t", queue_id)
        with member(node, "t", member="a", commit_interval_ms=60_000) as a:
            read(a, 20)
            assert a.poll(10) == []
            with member(node, "t", member="b") as b:
                settle(a, b, until=lambda: len(b.assignment()) == 2)
                assert b.assignment() == {("t", 2): 5, ("t", 3): 5}
                lost = [change for change in a.rebalances if change.lost]
                assert lost[0].lost == {("t", 2): 5, ("t", 3): 5}
            settle(a, until=lambda: len(a.assignment()) == 4)

    def test_what_was_read_of_a_lost_queue_is_committed_as_of_the_generation_in_which_it_was_ours(
        self, node: GroupNode
    ):
        """By an older one a node sets no offset back: the next reader may have committed meanwhile."""
        for queue_id in range(4):
            fill(node, 5, "t", queue_id)
        with member(node, "t", member="a", commit_interval_ms=600_000) as a:
            read(a, 20)
            assert a.poll(10) == []
            before = a.generation
            with member(node, "t", member="b") as b:
                settle(a, b, until=lambda: len(b.assignment()) == 2)
                told = [asked for asked in node.asked if asked["op"] == "group_commit" and asked["member"] == "a"]
                assert [asked["offsets"] for asked in told] == [{"t": {"2": 5, "3": 5}}]
                assert [asked["generation"] for asked in told] == [before]
                assert a.generation > before

    def test_what_a_member_that_died_did_not_finish_comes_to_the_next_one(self, node: GroupNode):
        bodies = fill(node, 10)
        a, b = member(node, member="a", max_count=5), member(node, member="b")
        try:
            found = read(a, 5)  # in its hand
            settle(b, until=lambda: a.members == ["a", "b"] or len(node.group.members) == 2)
            a._node_groups.all[0].member._closing = 0.0  # its thread ends without a word
            a._node_groups.all[0].member.ring()
            a._node_groups.all[0].member.join(DEADLINE_S)
            node.expel("a")
            again = read(b, 10)
        finally:
            a.close()
            b.close()
        assert bodies_of(again) == bodies
        assert bodies_of(found) == bodies[:5]

    def test_two_members_with_one_name(self, node: GroupNode):
        with member(node, member="same") as first, member(node, member="same", timeout_ms=300) as second:
            settle(first, until=lambda: bool(first.assignment()))
            with pytest.raises(MemberTaken):
                second.poll(60_000)
            assert second.assignment() == {}

    def test_a_topic_that_grows_is_shared_anew(self, node: GroupNode):
        with member(node) as consumer:
            settle(consumer, until=lambda: bool(consumer.assignment()))
            node.group.offsets["one", 1] = 0
            node.grow("one", 2)
            fill(node, 1, "one", 1)
            assert read(consumer, 1)[0].queue_id == 1

    def test_a_reset_moves_members_and_is_not_undone_by_their_commits(self, node: GroupNode):
        fill(node, 6)
        with member(node, commit_interval_ms=10) as consumer:
            read(consumer, 6)
            node.reset("one", {0: 2})
            assert [message.queue_offset for message in read(consumer, 4)] == [2, 3, 4, 5]

    def test_a_member_that_the_node_forgot_joins_again(self, node: GroupNode):
        with member(node, commit_interval_ms=10) as consumer:
            settle(consumer, until=lambda: bool(consumer.assignment()))
            node.lose_members()
            fill(node, 3)
            read(consumer, 3)
            assert consumer.poll(10) == []
            node.wait_for(lambda: node.group.members)
            node.wait_for(lambda: node.group.offsets["one", 0] == 3)


class TestManyThreads:
    def test_each_message_is_given_to_one_of_them_and_all_are_committed(self, node: GroupNode):
        for queue_id in range(4):
            fill(node, 60, "t", queue_id)
        lock, seen = threading.Lock(), []

        def handle(message: GroupMessage) -> None:
            with lock:
                seen.append((message.queue_id, message.queue_offset))
                if len(seen) == 240:
                    consumer.close()

        consumer = member(node, "t", max_count=7, commit_interval_ms=5)
        consumer.listen(handle, threads=4)
        assert sorted(seen) == [(queue, offset) for queue in range(4) for offset in range(60)]
        assert {node.group.offsets["t", queue] for queue in range(4)} == {60}

    def test_one_that_fails_ends_them_all_and_keeps_what_it_had(self, node: GroupNode):
        fill(node, 10)
        consumer = member(node, max_count=3)

        def handle(message: GroupMessage) -> None:
            if message.queue_offset == 4:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            consumer.listen(handle, threads=2)
        assert node.group.offsets["one", 0] <= 4


class TestOrder:
    def test_a_queue_is_one_threads_at_a_time(self, node: GroupNode):
        fill(node, 40)
        busy, seen, overlaps = threading.Lock(), [], []

        def handle(message: GroupMessage) -> None:
            overlaps.append(not busy.acquire(blocking=False))
            seen.append(message.queue_offset)
            busy.release()
            if len(seen) == 40:
                consumer.close()

        consumer = member(node, ordered=True, max_count=5)
        consumer.listen(handle, threads=3)
        consumer.close()
        assert seen == list(range(40))
        assert not any(overlaps)
        assert node.group.offsets["one", 0] == 40

    def test_without_the_lock_nothing_comes(self, node: GroupNode):
        fill(node, 3)
        node.stuck_locks.add(("one", 0))
        with member(node, ordered=True) as consumer:
            assert consumer.poll(300) == []
            node.stuck_locks.clear()
            assert len(read(consumer, 3)) == 3
            assert node.group.locks == {("one", 0): consumer.member}

    def test_a_lock_is_believed_for_half_its_life_from_the_question_on(
        self, node: GroupNode, monkeypatch: pytest.MonkeyPatch
    ):
        """The node counts its life from before the answer, by a clock of its own."""
        now = [1_000.0]
        monkeypatch.setattr("towline.client.group.member.boottime_s", lambda: now[0])
        with member(node, ordered=True) as consumer:
            node_group = consumer._node_groups.all[0]
            node_group.buffer.queues["one", 0] = queue = GroupQueue("one", 0, EVERYTHING)
            queue.begin(0)
            queue.locked_until = 0.0
            node_group.member._lock_s = 60.0
            call = node_group.member._lock()
            next(call)
            now[0] += 20
            with pytest.raises(StopIteration):
                call.send(Reply({"locked": [["one", 0]]}, Columns(b"", b"")))
            queue.begin(0)  # a lock that had lapsed lets it begin anew
            assert queue.may_deliver(queue.serial, 1_029.9)
            assert not queue.may_deliver(queue.serial, 1_030.0)

    def test_a_lost_lock_stops_delivery_and_the_queue_begins_anew_at_its_offset(self, node: GroupNode):
        fill(node, 10)
        node.lock_ms = 600
        with member(node, ordered=True, max_count=2, commit_interval_ms=60_000) as consumer:
            messages = iter(consumer)
            assert next(messages).queue_offset == 0
            node.stuck_locks.add(("one", 0))
            deadline = time.monotonic() + DEADLINE_S
            while consumer.assignment():
                assert time.monotonic() < deadline
            node.stuck_locks.clear()
            assert next(messages).queue_offset == 0  # it was not committed: somebody else might have had the queue

    def test_after_a_suspend_longer_than_the_lock_nothing_comes_until_it_is_ours_again(
        self, node: GroupNode, monkeypatch: pytest.MonkeyPatch
    ):
        fill(node, 10)
        with member(node, ordered=True, max_count=4, commit_interval_ms=60_000) as consumer:
            assert next(iter(consumer)).queue_offset == 0
            node.stuck_locks.add(("one", 0))  # another has it meanwhile
            ticking = time.clock_gettime
            asleep_s = {time.CLOCK_BOOTTIME: node.lock_ms / 1000}  # CLOCK_MONOTONIC stood still
            monkeypatch.setattr(time, "clock_gettime", lambda clock: ticking(clock) + asleep_s.get(clock, 0.0))
            assert consumer.poll(300) == []
            node.stuck_locks.clear()
            assert read(consumer, 1)[0].queue_offset == 1

    def test_a_message_in_hand_is_finished_before_its_queue_is_given_away(self, node: GroupNode):
        for queue_id in range(4):
            fill(node, 3, "t", queue_id)
        with member(node, "t", member="a", ordered=True) as a, member(node, "t", member="b", ordered=True) as b:
            held = next(message for message in a if message.queue_id == 3)
            found: list[GroupMessage] = []

            def await_queue(queue_id: int) -> None:
                deadline = time.monotonic() + DEADLINE_S
                while ("t", queue_id) not in b.assignment():
                    assert time.monotonic() < deadline
                    found.extend(b.poll(20))

            await_queue(2)
            assert ("t", 3) not in b.assignment()
            a.poll(0)  # the one in hand is finished by asking for more
            await_queue(3)
            settle_until = time.monotonic() + DEADLINE_S
            while held.queue_offset < 2 and not any(message.queue_id == 3 for message in found):
                assert time.monotonic() < settle_until
                found += b.poll(20)
        assert all(message.queue_offset > held.queue_offset for message in found if message.queue_id == 3)

    def test_a_message_that_fails_is_tried_again_in_its_place(self, node: GroupNode):
        fill(node, 3)
        seen: list[int] = []

        def handle(message: GroupMessage) -> None:
            seen.append(message.queue_offset)
            if seen == [0, 1]:
                raise RuntimeError("not now")
            if message.queue_offset == 2:
                consumer.close()

        consumer = member(node, ordered=True)
        consumer.listen(handle)
        assert seen == [0, 1, 1, 2]


class TestBroadcasting:
    def start(self, node: GroupNode, path: Path, **settings: Any) -> GroupConsumer:
        return member(node, "t", model="broadcasting", offsets_file=path, **settings)

    def test_every_member_reads_everything_and_goes_on_where_it_stood(self, node: GroupNode, tmp_path: Path):
        for queue_id in range(4):
            fill(node, 3, "t", queue_id)
        with self.start(node, tmp_path / "a") as a, self.start(node, tmp_path / "b") as b:
            assert len(read(a, 12)) == len(read(b, 12)) == 12
        fill(node, 1, "t", 2)
        with self.start(node, tmp_path / "a") as a:
            assert [(m.queue_id, m.queue_offset) for m in read(a, 1)] == [(2, 3)]
        assert not node.commits

    def test_where_it_began_is_remembered_although_nothing_was_read(self, node: GroupNode, tmp_path: Path):
        fill(node, 3, "t", 0)
        with self.start(node, tmp_path / "a", start="last") as a:
            settle(a, until=lambda: len(a.assignment()) == 4)
        fill(node, 1, "t", 0)
        with self.start(node, tmp_path / "a", start="last") as a:
            assert [m.queue_offset for m in read(a, 1)] == [3]

    def test_a_damaged_file_falls_back_to_the_one_before(self, node: GroupNode, tmp_path: Path):
        fill(node, 2, "t", 0)
        path = tmp_path / "offsets"
        with self.start(node, path) as a:
            read(a, 2)
        path.write_bytes(b'{"offsetTa')
        with self.start(node, path) as a:
            assert len(read(a, 2)) == 2  # it began anew at 0, which the copy holds
        assert b'"0": 2' in path.read_bytes()
        path.write_bytes(b"")
        (tmp_path / "offsets.bak").write_bytes(b"[]")
        with self.start(node, path) as a, pytest.raises(OffsetsFileDamaged):
            a.poll(60_000)

    def test_a_file_is_one_consumers(self, node: GroupNode, tmp_path: Path):
        with self.start(node, tmp_path / "a"), pytest.raises(OffsetsFileTaken):
            self.start(node, tmp_path / "a")

    def test_a_file_that_cannot_be_written_is_told_and_tried_again(self, node: GroupNode, tmp_path: Path):
        fill(node, 2, "t", 0)
        path = tmp_path / "deep" / "offsets"
        with self.start(node, path, commit_interval_ms=20) as a:
            read(a, 2)
            (path.parent / "offsets.tmp").mkdir()
            with pytest.raises(OffsetsNotSaved):
                settle(a, until=lambda: False)
            (path.parent / "offsets.tmp").rmdir()
            a.commit()
        assert b'"0": 2' in path.read_bytes()
