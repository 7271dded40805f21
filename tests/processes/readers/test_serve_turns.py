"""The read process turn by turn, with real links: requests in, answers out, and what a peer may do wrong."""

import time

import numpy as np
import pytest

from tests.processes.serving import Serve, build, pull_of, serve
from tests.serve.building import SEGMENT
from tests.serve.conftest import Build
from towline.errors import LinkRefused
from towline.format.files.consume_queue import ENTRY, encode, tags_code
from towline.format.wire.frames import ASK, PULL, RECORDS_IN_FILE, STRETCH, Kind, expect, read_json
from towline.format.wire.status import GetStatus
from towline.limits import REST_MAX_MS
from towline.link.native import address_of
from towline.log.files.segment_files import segment_name
from towline.runtime.agent import DutyCycle
from towline.runtime.idle_sleep import IdleSleep
from towline.runtime.positions import Counter
from towline.serve.service import SUSPEND_MAX_MS

__all__ = ["build", "serve"]  # the fixtures

DEADLINE_S = 60.0


def test_reput_need_not_wake_it_unless_a_pull_waits(serve, build):
    built = build()
    built.fill(1)
    serving = serve(built)
    idle, line = (
        DutyCycle(serving.agent, serving.bell, IdleSleep(serving.node.line, address_of("zmq_poll"))),
        serving.node.line,
    )

    def turns_until(held: int) -> None:
        """And two more: one that arms the bell, one that goes to sleep."""
        deadline = time.monotonic() + DEADLINE_S
        while len(serving.agent._held_pulls) != held and time.monotonic() < deadline:
            idle.run_once()
        for _ in range(3):
            idle.run_once()

    turns_until(held=0)
    assert not line.sleeping
    serving.pull(1, suspend=10_000)
    turns_until(held=1)
    assert line.sleeping
    built.append()
    built.dispatch()
    turns_until(held=0)
    assert not line.sleeping


class TestPulls:
    def test_a_slice_of_the_log(self, build: Build, serve: Serve):
        built = build()
        offsets = built.fill(4)
        serving = serve(built)
        serving.pull(1, request_id=77)
        (kind, status, queue, request_id, count, following, low, high, _), parts = serving.answer()
        assert (kind, status, queue, request_id) == (Kind.PULL_ANSWER, GetStatus.FOUND, 0, 77)
        assert (count, following, low, high) == (3, 4, 0, 4)
        assert bytes(parts[2]) == built.bytes_of(offsets[1:])
        assert np.frombuffer(parts[1], ">u4").tolist() == [len(built.records[at]) for at in offsets[1:]]

    def test_a_slice_too_large_to_be_copied(self, build: Build, serve: Serve):
        built = build(segment=16 * SEGMENT)
        offsets = [built.append(body=b"y" * 50_000) for _ in range(6)]
        built.dispatch()
        serving = serve(built)
        for _ in range(20):
            serving.pull(0)
        for _ in range(20):
            assert bytes(serving.answer()[1][2]) == built.bytes_of(offsets)

    def test_who_reads_files_is_told_where_the_records_stand(self, build: Build, serve: Serve):
        built = build(segment=16 * SEGMENT)
        offsets = [built.append(body=b"y" * 50_000) for _ in range(6)]
        built.dispatch()
        serving = serve(built)
        serving.pull(1, reads_files=True)
        (_, _, _, _, count, *_, flags), parts = serving.answer()
        assert (count, flags) == (5, RECORDS_IN_FILE)
        device, inode, base, start, size = expect(STRETCH, parts[2])
        path = built.store.commitlog / segment_name(base)
        assert (path.stat().st_dev, path.stat().st_ino) == (device, inode)
        assert path.read_bytes()[start - base :][:size] == built.bytes_of(offsets[1:])
        path.unlink()
        serving.pull(1, reads_files=True)
        (*_, flags), parts = serving.answer()
        assert not flags
        assert bytes(parts[2]) == built.bytes_of(offsets[1:])

    def test_few_bytes_and_scattered_records_are_sent_to_who_reads_files_too(self, build: Build, serve: Serve):
        built = build(segment=16 * SEGMENT)
        offsets = []
        for size in (100, 50_000, 50_000):
            offsets.append(built.append(body=b"y" * size))
            built.append("other")
        built.dispatch()
        serving = serve(built)
        for first, count in ((0, 1), (0, 3)):
            serving.pull(first, reads_files=True, max_count=count)
            (*_, flags), parts = serving.answer()
            assert not flags
            assert bytes(parts[2]) == built.bytes_of(offsets[first:count])

    def test_a_gathered_answer(self, build: Build, serve: Serve):
        built = build()
        offsets = []
        for _ in range(3):
            offsets.append(built.append())
            built.append("other")
        built.dispatch()
        serving = serve(built)
        serving.pull()
        assert bytes(serving.answer()[1][2]) == built.bytes_of(offsets)

    def test_an_answer_without_records_is_a_head(self, build: Build, serve: Serve):
        built = build()
        built.fill(2)
        serving = serve(built)
        serving.pull(2)
        (_, status, _, _, count, following, *_), parts = serving.answer()
        assert (status, count, following, len(parts)) == (GetStatus.OFFSET_OVERFLOW_ONE, 0, 2, 1)

    @pytest.mark.parametrize("place", [100, -5, 1 << 40], ids=["size", "negative", "behind the log"])
    def test_a_damaged_entry_is_named_and_what_stands_before_and_behind_it_is_read(
        self, build: Build, serve: Serve, place: int
    ):
        built = build()
        built.fill(5)
        built.queues.write("t", 0, 2, np.frombuffer(encode(place, 1 << 20, 0), dtype=ENTRY))
        serving = serve(built)
        serving.pull(0)
        assert serving.status() == (GetStatus.FOUND, 2)
        for _ in range(2):
            serving.pull(2)
            (_, status, _, _, count, following, *_), parts = serving.answer()
            assert (status, count, following) == (GetStatus.REFUSED, 0, 2)
            facts = read_json(parts[1])
            assert (facts["error"], facts["offset"]) == ("QueueDamaged", 2)
            assert str(place) in facts["problem"]
        serving.pull(3)
        assert serving.status() == (GetStatus.FOUND, 5)

    def test_what_was_sent_is_counted(self, build: Build, serve: Serve):
        built = build()
        offsets = built.fill(3)
        serving = serve(built)
        serving.pull()
        serving.answer()
        line = serving.node.line
        assert line.counter(Counter.MESSAGES) == 3
        assert line.counter(Counter.BYTES) == len(built.bytes_of(offsets))


class TestLongPolling:
    def test_a_message_wakes_the_pull_that_waits_for_it(self, build: Build, serve: Serve):
        built = build()
        built.fill(1)
        serving = serve(built)
        serving.hold(1)
        serving.quiet()
        at = built.append()
        serving.quiet()  # appended is not enough
        built.dispatch()
        assert bytes(serving.answer()[1][2]) == built.records[at]
        assert len(serving.agent._held_pulls) == 0

    def test_the_bell_ends_a_sleep(self, build: Build, serve: Serve):
        built = build()
        built.fill(1)
        serving = serve(built)
        serving.hold(1)
        idle = DutyCycle(serving.agent, serving.bell, IdleSleep(serving.node.line, address_of("zmq_poll")))
        idle.run_once()
        assert 0 < serving.agent.sleep_ms() <= REST_MAX_MS
        serving.bell.arm()
        built.append()
        built.dispatch()
        started = time.monotonic()
        serving.agent.wait(40_000, None)
        assert time.monotonic() - started < 20
        serving.bell.disarm()
        serving.bell.drain()
        assert serving.status() == (GetStatus.FOUND, 2)

    def test_a_message_of_another_queue_wakes_nobody(self, build: Build, serve: Serve):
        built = build()
        built.fill(1)
        serving = serve(built)
        serving.hold(1)
        built.fill(3, queue=1)
        serving.quiet()
        assert len(serving.agent._held_pulls) == 1

    def test_when_the_time_is_over_the_status_is_told(self, build: Build, serve: Serve):
        built = build()
        built.fill(1)
        serving = serve(built)
        serving.hold(1)
        built.clock.ms += 950
        assert serving.agent.sleep_ms() <= 50
        built.clock.ms += 49
        serving.quiet()
        built.clock.ms += 1
        assert serving.agent.sleep_ms() == 0
        assert serving.status() == (GetStatus.OFFSET_OVERFLOW_ONE, 1)

    def test_a_pull_waits_for_the_first_message_of_a_queue(self, build: Build, serve: Serve):
        built = build()
        built.topics(t=1)
        serving = serve(built)
        serving.hold(0)
        built.fill(1)
        assert serving.status() == (GetStatus.FOUND, 1)

    def test_a_pull_for_an_unknown_topic_does_not_wait(self, build: Build, serve: Serve):
        built = build()
        built.topics(other=1)
        serving = serve(built)
        serving.pull(0, suspend=1_000)
        assert serving.status() == (GetStatus.REFUSED, 0)

    def test_after_a_start_a_pull_beyond_the_end_waits_until_the_end_is_known(self, build: Build, serve: Serve):
        built = build()
        built.topics(t=1)
        built.fill(2)
        built.append()
        serving = serve(built)
        serving.hold(3)
        serving.hold(9, request_id=2)
        built.dispatch()
        found = {serving.status(), serving.status()}
        assert found == {(GetStatus.OFFSET_OVERFLOW_ONE, 3), (GetStatus.OFFSET_OVERFLOW_BADLY, 3)}

    def test_on_a_slave_a_pull_beyond_the_end_waits_for_the_master(self, build: Build, serve: Serve):
        built = build(broker_role="SLAVE")
        built.fill(2)
        serving = serve(built)
        serving.hold(4)
        built.fill(2)
        serving.quiet()
        built.fill(1)
        assert serving.status() == (GetStatus.FOUND, 5)

    def test_messages_that_the_filter_leaves_out_do_not_end_the_wait(self, build: Build, serve: Serve):
        built = build()
        built.fill(1, tag="a")
        serving = serve(built)
        serving.hold(1, codes=(tags_code("a"),))
        built.fill(3, tag="b")
        serving.quiet()
        assert len(serving.agent._held_pulls) == 1
        at = built.append(tag="a")
        built.dispatch()
        (_, status, _, _, _, following, *_), parts = serving.answer()
        assert (status, following, bytes(parts[2])) == (GetStatus.FOUND, 5, built.records[at])

    def test_and_are_not_looked_at_again_when_the_time_is_over(self, build: Build, serve: Serve):
        built = build()
        built.fill(1, tag="a")
        serving = serve(built)
        serving.hold(1, codes=(tags_code("a"),))
        built.fill(3, tag="b")
        serving.quiet()
        built.clock.ms += 1_000
        assert serving.status() == (GetStatus.NO_MATCHED_MESSAGE, 4)

    def test_a_wait_has_a_longest_time(self, build: Build, serve: Serve):
        built = build()
        built.fill(1)
        serving = serve(built)
        serving.pull(1, suspend=2**31 - 1)
        serving.until(lambda: len(serving.agent._held_pulls), "the held pull")
        built.clock.ms += SUSPEND_MAX_MS
        assert serving.status() == (GetStatus.OFFSET_OVERFLOW_ONE, 1)

    def test_without_long_polling_a_pull_waits_a_short_time(self, build: Build, serve: Serve):
        built = build(long_polling_enable=False, short_polling_time_mills=100)
        built.fill(1)
        serving = serve(built)
        serving.hold(1)
        built.clock.ms += 100
        assert serving.status() == (GetStatus.OFFSET_OVERFLOW_ONE, 1)

    def test_the_held_pull_of_a_peer_that_left_is_dropped(self, build: Build, serve: Serve):
        built = build()
        built.fill(1)
        serving = serve(built)
        leaving = serving.connect()
        serving.hold(1, link=leaving)
        serving.hold(1, link=leaving)
        serving.hold(1)
        leaving.close()
        serving.links.remove(leaving)
        serving.quiet()
        built.fill(1)
        assert serving.status() == (GetStatus.FOUND, 2)
        serving.until(lambda: not serving.agent._held_pulls and not serving.agent._paused, "the end of the held pulls")

    def test_who_waits_is_answered_when_the_process_stops(self, build: Build, serve: Serve):
        built = build()
        built.fill(1)
        serving = serve(built)
        serving.hold(1)
        assert serving.agent.drain()
        assert serving.status() == (GetStatus.OFFSET_OVERFLOW_ONE, 1)


class TestQuestions:
    def test_an_answer_with_records(self, build: Build, serve: Serve):
        built = build()
        offsets = built.fill(2, keys="k")
        status, facts, (sizes, records) = serve(built).ask(op="query_key", topic="t", key="k")
        assert (status, facts["found"]) == (0, 2)
        assert bytes(records) == built.bytes_of(offsets)
        assert np.frombuffer(sizes, ">u4").tolist() == [len(built.records[at]) for at in offsets]

    def test_an_answer_without(self, build: Build, serve: Serve):
        built = build()
        built.topics(t=1)
        status, facts, rest = serve(built).ask(op="bounds", topic="t")
        assert (status, rest) == (0, [])
        assert facts["queues"] == [{"queue": 0, "min": 0, "max": 0}]

    @pytest.mark.parametrize(
        ("question", "error"),
        [
            ({"op": "bounds", "topic": "no"}, "UnknownTopic"),
            ({"op": "query_offset", "offset": 3}, "NoRecordHere"),
            ({"op": "query_offset", "offset": 1 << 40}, "NotInLog"),
            ({"op": "query_id", "id": "x"}, "IllegalMessageId"),
            ({"op": "sing"}, "MalformedFrame"),
        ],
    )
    def test_an_error_has_a_name_and_a_sentence(self, build: Build, serve: Serve, question, error):
        built = build()
        built.fill(2)
        status, facts, _ = serve(built).ask(**question)
        assert (status, facts["error"]) == (1, error)
        assert len(facts["sentence"].split()) > 5


class TestBadPeers:
    @pytest.mark.parametrize(
        "parts",
        [
            pytest.param([b"\xee" * 40], id="random bytes"),
            pytest.param([b""], id="nothing"),
            pytest.param([bytes([Kind.PULL]) * (PULL.size - 1)], id="a pull cut short"),
            pytest.param([pull_of(1) + b"x"], id="a pull that goes on"),
            pytest.param([pull_of(1), b"{}"], id="a pull in two parts"),
            pytest.param([ASK.pack(Kind.ASK, 1), b"{"], id="a question that is not JSON"),
            pytest.param([ASK.pack(Kind.ASK, 1)], id="a question without its facts"),
            pytest.param([bytes([Kind.PUT]) * 64, b"records"], id="a put"),
        ],
    )
    def test_a_frame_that_is_none_of_ours_costs_its_sender_the_link(self, build: Build, serve: Serve, parts):
        built = build()
        built.fill(1)
        serving = serve(built)
        bad = serving.connect()
        serving.hold(1, link=bad)
        assert bad.send(parts)
        serving.until(lambda: bad.lost, "the end of the link")
        assert len(serving.agent._held_pulls) == 0
        assert serving.node.line.counter(Counter.REFUSED) == 1
        serving.pull(0)
        assert serving.status() == (GetStatus.FOUND, 1)

    def test_a_peer_of_another_cluster_is_refused(self, build: Build, serve: Serve):
        serving = serve(build())
        with pytest.raises(LinkRefused, match=r"'elsewhere'.*'DefaultCluster'"):
            serving.connect(cluster="elsewhere")

    def test_a_welcome_names_the_largest_answer(self, build: Build, serve: Serve):
        serving = serve(build())
        assert serving.welcome["role"] == "serve"
        assert serving.welcome["pull_bytes_max"] == 8 << 20
