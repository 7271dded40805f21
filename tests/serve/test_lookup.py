"""Questions on real files: what the index or a guess leads to is answered only when it is really there."""

from typing import Any

import pytest

from towline.errors import (
    IllegalMessageId,
    IndexDisabled,
    MalformedFrame,
    NoRecordHere,
    NotInLog,
    RecordDamaged,
    UnknownQueue,
    UnknownTopic,
)
from towline.format.files.epochs import Epoch
from towline.format.java_hash import string_hash
from towline.format.record.message_id import encode_offset_id
from towline.format.record.record import LAYOUT, TRANSACTION_COMMIT, TRANSACTION_PREPARED, Host, Record, encode
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.queues.index_service import QUERY_COUNT, IndexService
from towline.log.state.epoch_file import EpochFile
from towline.runtime.positions import Duty, Position
from towline.runtime.queue_ends import QueueEnds
from towline.serve.catch_up import CATCH_UP_MAX_MS, CatchUp, StillStarting
from towline.serve.lookup import TIME_MAX, Lookup, LookupAnswer
from towline.serve.service import lookup_rules
from towline.serve.topics import TopicsView

from .building import NOON, SEGMENT, Built, StillClock
from .conftest import Build


def lookup(built: Built, clock: StillClock | None = None) -> Lookup:
    settings = built.settings
    log = CommitLogReader(built.store.commitlog, SEGMENT)
    log.load()
    index = None
    if settings.message_index_enable:
        index = IndexService(built.store.index, settings.max_hash_slot_num, settings.max_index_num)
        index.load()
    return Lookup(
        TopicsView(built.store.config / "topics.json"),
        QueueEnds.open(built.runtime.queue_ends),
        ConsumeQueueFiles(built.store.consumequeue, settings.mapped_file_size_consume_queue, 16),
        log,
        index,
        built.positions.get,
        lookup_rules(settings),
        EpochFile(built.store),
        CatchUp(built.positions.get, clock or StillClock()),
        lambda *_: None,
    )


def ask(built: Built, op: str, **facts: Any) -> LookupAnswer:
    return lookup(built).answer({"op": op, **facts})


class TestTopics:
    def test_a_route(self, build):
        built = build()
        built.topics(t=3)
        assert ask(built, "route", topic="t").facts == {
            "topic": "t",
            "write_queues": 3,
            "read_queues": 3,
            "perm": 6,
            "order": False,
            "filter_type": "SINGLE_TAG",
            "retention_ms": None,
            "retention_bytes": None,
            "system": False,
        }

    def test_all_topics_by_name(self, build):
        built = build()
        built.topics(b=1, a=2)
        assert [row["topic"] for row in ask(built, "topics").facts["topics"]] == ["a", "b"]

    def test_without_a_file_there_are_none(self, build):
        assert ask(build(), "topics").facts == {"topics": []}

    @pytest.mark.parametrize("name", ["x", "", "\ud800", "../.."])
    @pytest.mark.parametrize("op", ["route", "bounds"])
    def test_an_unknown_topic_is_named(self, build, op, name):
        with pytest.raises(UnknownTopic):
            ask(build(), op, topic=name)

    def test_a_topic_made_later_is_seen(self, build):
        built = build()
        built.topics(a=1)
        asked = lookup(built)
        assert len(asked.answer({"op": "topics"}).facts["topics"]) == 1
        built.topics(a=1, b=2)
        assert asked.answer({"op": "route", "topic": "b"}).facts["read_queues"] == 2

    def test_a_topic_that_changed_is_seen(self, build):
        built = build()
        built.topics(a=1)
        asked = lookup(built)
        asked.answer({"op": "route", "topic": "a"})
        built.topics(a=16)
        assert asked.answer({"op": "route", "topic": "a"}).facts["read_queues"] == 16

    def test_the_generation_before_serves_while_the_file_is_replaced(self, build):
        built = build()
        built.topics(a=1)
        path = built.store.config / "topics.json"
        path.rename(path.with_name("topics.json.bak"))
        assert ask(built, "route", topic="a").facts["read_queues"] == 1

    def test_bounds_of_every_queue(self, build):
        built = build()
        built.topics(t=3)
        built.fill(2, queue=0)
        built.fill(3, queue=2, first=10)
        assert ask(built, "bounds", topic="t").facts["queues"] == [
            {"queue": 0, "min": 0, "max": 2},
            {"queue": 1, "min": 0, "max": 0},
            {"queue": 2, "min": 10, "max": 13},
        ]


class TestEpochs:
    @pytest.fixture
    def built(self, build: Build) -> Built:
        """Queue 0 has 20 messages: 5 of epoch 0, 4 of 256, the rest of 513. Queue 1 has none of 0."""
        built = build()
        built.topics(t=2)
        starts = [(0, 0)]
        for number, count in ((256, 5), (513, 4), (0, 11)):
            for _ in range(count):
                built.append("t", 0)
            if number:
                starts.append((number, built.end))
                built.append("t", 1)
        built.dispatch()
        EpochFile(built.store).save(tuple(Epoch(*start) for start in starts))
        built.positions.writer(Position.EPOCH, Duty.RECOVER).advance(513)
        return built

    @pytest.mark.parametrize(
        ("epoch", "ends"),
        [(0, {"0": 5, "1": 0}), (255, {"0": 5, "1": 0}), (256, {"0": 9, "1": 1}), (513, {}), (600, {})],
    )
    def test_each_queue_got_so_far_before_the_next_one_began(self, built: Built, epoch: int, ends: dict[str, int]):
        assert ask(built, "epoch_ends", topic="t", epoch=epoch).facts == {"epoch": 513, "ends": ends}

    def test_an_unknown_topic_is_named(self, built: Built):
        with pytest.raises(UnknownTopic):
            ask(built, "epoch_ends", topic="x", epoch=0)


class TestAfterAStart:
    """Reput has dispatched 3 records of 5 that the log held when serve began."""

    @pytest.fixture
    def built(self, build: Build) -> Built:
        built = build()
        built.topics(t=1)
        for number in range(3):
            built.append(store_time=NOON + number)
        built.dispatch()
        for number in (3, 4):
            built.append(store_time=NOON + number)
        return built

    @pytest.mark.parametrize(
        ("op", "more"),
        [("bounds", {}), ("offset_by_time", {"queue": 0, "time": NOON + 4})],
    )
    def test_ends_are_told_when_the_queues_are_as_long_as_the_log_was(self, built, op, more):
        asked = lookup(built)
        with pytest.raises(StillStarting):
            asked.answer({"op": op, "topic": "t", **more})
        built.dispatch()
        found = asked.answer({"op": op, "topic": "t", **more}).facts
        assert found == (
            {"topic": "t", "queues": [{"queue": 0, "min": 0, "max": 5}]} if op == "bounds" else {"offset": 4}
        )

    def test_a_time_that_is_dispatched_is_found_at_once(self, built):
        facts = lookup(built).answer({"op": "offset_by_time", "topic": "t", "queue": 0, "time": NOON + 1}).facts
        assert facts == {"offset": 1}

    def test_ends_are_not_refused_for_ever_for_what_may_never_be_visible(self, built):
        clock = StillClock()
        asked = lookup(built, clock)
        clock.ms += CATCH_UP_MAX_MS
        assert asked.answer({"op": "bounds", "topic": "t"}).facts["queues"][0]["max"] == 3

    def test_the_end_of_an_epoch_is_told_when_the_queues_reach_it(self, built):
        EpochFile(built.store).save((Epoch(0, 0), Epoch(256, list(built.records)[4])))
        built.positions.writer(Position.EPOCH, Duty.RECOVER).advance(256)
        clock = StillClock()
        asked = lookup(built, clock)
        clock.ms += CATCH_UP_MAX_MS
        with pytest.raises(StillStarting):
            asked.answer({"op": "epoch_ends", "topic": "t", "epoch": 0})
        built.dispatch()
        assert asked.answer({"op": "epoch_ends", "topic": "t", "epoch": 0}).facts["ends"] == {"0": 4}

    def test_a_miss_of_a_key_is_none_yet(self, built):
        asked = lookup(built)
        assert not asked.answer({"op": "query_key", "topic": "t", "key": "k"}).facts["complete"]
        built.dispatch()
        assert asked.answer({"op": "query_key", "topic": "t", "key": "k"}).facts["complete"]


class TestOffsetByTime:
    @pytest.fixture
    def built(self, build: Build) -> Built:
        built = build()
        built.topics(t=2)
        for number in range(20):  # three files, two records each 10 ms
            built.append(store_time=NOON + number // 2 * 10)
        built.dispatch()
        return built

    @pytest.mark.parametrize(
        ("time", "boundary", "offset"),
        [
            (NOON - 5, "lower", 0),
            (NOON + 40, "lower", 8),
            (NOON + 41, "lower", 10),
            (NOON + 999, "lower", 20),
            (NOON + 40, "upper", 9),
            (NOON + 49, "upper", 9),
            (NOON - 5, "upper", 0),
            (NOON + 999, "upper", 19),
        ],
    )
    def test_the_boundaries(self, built, time, boundary, offset):
        facts = ask(built, "offset_by_time", topic="t", queue=0, time=time, boundary=boundary).facts
        assert facts == {"offset": offset}

    def test_lower_by_default(self, built):
        assert ask(built, "offset_by_time", topic="t", queue=0, time=NOON + 40).facts == {"offset": 8}

    def test_a_queue_without_messages(self, built):
        assert ask(built, "offset_by_time", topic="t", queue=1, time=NOON).facts == {"offset": 0}

    def test_a_queue_that_is_not_there(self, built):
        with pytest.raises(UnknownQueue):
            ask(built, "offset_by_time", topic="t", queue=2, time=NOON)

    def test_an_unknown_boundary(self, built):
        with pytest.raises(MalformedFrame, match="middle"):
            ask(built, "offset_by_time", topic="t", queue=0, time=NOON, boundary="middle")


class TestStoreTimes:
    def test_of_messages_that_are_there_and_of_others(self, build):
        built = build()
        built.topics(t=2)
        for number in range(3):
            built.append(store_time=NOON + number)
        built.dispatch()
        places = [["t", 0, 2], ["t", 0, 0], ["t", 0, 3], ["t", 0, -1], ["t", 1, 0], ["t", 9, 0], ["\ud800", 0, 0]]
        times = ask(built, "store_times", places=places).facts["times"]
        assert times == [NOON + 2, NOON, -1, -1, -1, -1, -1]

    @pytest.mark.parametrize("places", [[["t", 0]], [7], [["t", "0", 0]], [["t", 0, 0]] * 257])
    def test_places_that_are_none_or_too_many(self, build, places):
        with pytest.raises(MalformedFrame):
            ask(build(), "store_times", places=places)


class TestByKey:
    def test_each_of_several_keys(self, build):
        built = build()
        at = built.append(keys="k1 k2")
        built.append(keys="k3")
        built.dispatch()
        for key in ("k1", "k2"):
            found = ask(built, "query_key", topic="t", key=key)
            assert [bytes(record) for record in found.records] == [built.records[at]]
            assert found.facts == {"found": 1, "truncated": False, "complete": True, "damaged": 0}

    @pytest.mark.parametrize(
        ("topic", "key"), [("t", "k"), ("t", ""), ("u", "k1"), ("t", "k1 k2"), ("\ud800", "\ud801")]
    )
    def test_no_other_key_and_no_other_topic(self, build, topic, key):
        built = build()
        built.append(keys="k1 k2")
        built.dispatch()
        assert ask(built, "query_key", topic=topic, key=key).records == []

    def test_keys_of_one_hash_are_told_apart(self, build):
        assert string_hash("t#Aa") == string_hash("t#BB")
        built = build()
        at = built.append(keys="Aa")
        built.append(keys="BB")
        built.dispatch()
        found = ask(built, "query_key", topic="t", key="Aa")
        assert [bytes(record) for record in found.records] == [built.records[at]]

    def test_a_key_is_found_behind_any_number_of_others_of_its_hash(self, build):
        built = build()
        at = built.append(keys="AaAa")
        built.fill(QUERY_COUNT + 1, keys="BBBB")
        found = ask(built, "query_key", topic="t", key="AaAa")
        assert b"".join(found.records) == built.bytes_of([at])
        assert not found.facts["truncated"]

    def test_a_time_within_a_busy_second_is_found(self, build):
        built = build()
        at = built.append(keys="k", store_time=NOON)
        for _ in range(QUERY_COUNT + 1):
            built.append(keys="k", store_time=NOON + 20)
        built.dispatch()
        found = ask(built, "query_key", topic="t", key="k", begin=NOON, end=NOON)
        assert b"".join(found.records) == built.bytes_of([at])

    def test_as_many_come_as_the_settings_let_come(self, build):
        built = build(max_msgs_num_batch=1_000)
        offsets = built.fill(3 * QUERY_COUNT, keys="k")
        found = ask(built, "query_key", topic="t", key="k", max=1_000)
        assert b"".join(found.records) == built.bytes_of(offsets)
        assert not found.facts["truncated"]

    def test_an_answer_says_that_there_is_more(self, build):
        built = build()
        built.fill(3, keys="k")
        assert ask(built, "query_key", topic="t", key="k", max=2).facts["truncated"]
        assert not ask(built, "query_key", topic="t", key="k", max=3).facts["truncated"]

    def test_a_lookup_looks_at_a_bounded_number_of_records_and_says_so(self, build, monkeypatch):
        monkeypatch.setattr("towline.serve.lookup.LOOKUP_RECORDS_MAX", 70)
        built = build()
        offsets = built.fill(10, keys="AaAa")
        built.fill(65, keys="BBBB")
        found = ask(built, "query_key", topic="t", key="AaAa")
        assert b"".join(found.records) == built.bytes_of(offsets[5:])
        assert found.facts["truncated"]

    def test_what_left_the_log_ends_the_looking(self, build, monkeypatch):
        monkeypatch.setattr("towline.serve.lookup.LOOKUP_RECORDS_MAX", QUERY_COUNT + 4)
        built = build()
        offsets = built.fill(300, keys="k")
        built.forget_before(offsets[-2])
        found = ask(built, "query_key", topic="t", key="k")
        assert b"".join(found.records) == built.bytes_of(offsets[-2:])
        assert not found.facts["truncated"]

    def test_an_index_that_is_behind_is_told_of(self, build):
        built = build()
        built.fill(1, keys="k")
        assert ask(built, "query_key", topic="t", key="k").facts["complete"]
        built.append(keys="k")
        built.dispatch(indexed=False)
        found = ask(built, "query_key", topic="t", key="k")
        assert (len(found.records), found.facts["complete"]) == (1, False)

    def test_unique_keys_and_keys_are_told_apart(self, build):
        built = build()
        one = built.append(unique_key="same")
        other = built.append(keys="same")
        built.dispatch()
        assert [bytes(r) for r in ask(built, "query_unique_key", topic="t", key="same").records] == [built.records[one]]
        assert [bytes(r) for r in ask(built, "query_key", topic="t", key="same").records] == [built.records[other]]

    def test_the_newest_come_in_the_order_of_the_log(self, build):
        built = build()
        offsets = built.fill(10, keys="k")
        found = ask(built, "query_key", topic="t", key="k", max=3)
        assert b"".join(found.records) == built.bytes_of(offsets[-3:])

    def test_without_a_number_the_settings_say_how_many(self, build):
        built = build(default_query_max_num=4, max_msgs_num_batch=6)
        built.fill(10, keys="k")
        assert len(ask(built, "query_key", topic="t", key="k").records) == 4
        assert len(ask(built, "query_key", topic="t", key="k", max=99).records) == 6

    def test_a_time_is_exact_to_the_millisecond(self, build):
        built = build()
        offsets = [built.append(keys="k", store_time=NOON + ms) for ms in (0, 1500, 1999, 2000, 5000)]
        built.dispatch()
        found = ask(built, "query_key", topic="t", key="k", begin=NOON + 1999, end=NOON + 2000)
        assert b"".join(found.records) == built.bytes_of(offsets[2:4])

    @pytest.mark.parametrize("begin", [-5, 0, NOON, TIME_MAX, 1 << 80])
    @pytest.mark.parametrize("end", [-5, NOON, TIME_MAX, 1 << 80])
    def test_any_time_may_be_asked_for(self, build, begin, end):
        built = build()
        built.append(keys="k", store_time=NOON)
        built.dispatch()
        found = ask(built, "query_key", topic="t", key="k", begin=begin, end=end)
        assert len(found.records) == (begin <= NOON <= end)

    def test_what_was_not_dispatched_is_not_found_though_it_is_indexed(self, build):
        built = build()
        built.fill(1, keys="k")
        end = built.end
        built.append(keys="k")
        built.index.put(*_scanned(built, end))
        assert len(ask(built, "query_key", topic="t", key="k").records) == 1

    def test_what_left_the_log_is_not_found(self, build):
        built = build()
        offsets = built.fill(2, keys="k")
        built.forget_before(offsets[1])
        found = ask(built, "query_key", topic="t", key="k")
        assert b"".join(found.records) == built.bytes_of(offsets[1:])

    def test_an_answer_has_a_size(self, build):
        built = build(pull_bytes_max=70 * 1024)
        offsets = [built.append(body=b"y" * 30_000, keys="k") for _ in range(4)]
        built.dispatch()
        found = ask(built, "query_key", topic="t", key="k")
        assert b"".join(found.records) == built.bytes_of(offsets[-2:])
        assert found.facts == {"found": 2, "truncated": True, "complete": True, "damaged": 0}

    def test_without_an_index_there_is_no_lookup(self, build):
        with pytest.raises(IndexDisabled):
            ask(build(message_index_enable=False), "query_key", topic="t", key="k")

    def test_a_number_is_a_number(self, build):
        with pytest.raises(MalformedFrame, match="begin"):
            ask(build(), "query_key", topic="t", key="k", begin="yesterday")


def _scanned(built: Built, start: int) -> tuple[Any, Any, Any]:
    batch = built._scan.read(start, built.end)
    return batch.log, batch.rows, batch.keys


class TestByOffset:
    def test_every_record_is_found_where_it_begins_and_nowhere_else(self, build):
        built = build()
        offsets = built.fill(3)
        asked = lookup(built)
        for at in range(built.end):
            question = {"op": "query_offset", "offset": at}
            if at in offsets:
                assert [bytes(record) for record in asked.answer(question).records] == [built.records[at]]
            else:
                with pytest.raises(NoRecordHere):
                    asked.answer(question)

    @pytest.mark.parametrize("offset", [-1, 1 << 40, 1 << 70])
    def test_an_offset_outside_the_log(self, build, offset):
        built = build()
        built.fill(1)
        with pytest.raises(NotInLog):
            ask(built, "query_offset", offset=offset)

    def test_a_record_that_was_not_dispatched(self, build):
        built = build()
        built.fill(1)
        with pytest.raises(NotInLog):
            ask(built, "query_offset", offset=built.append())

    @pytest.mark.parametrize("queue_offset", [0, 1, 7], ids=["of the message around it", "of the next", "of none"])
    def test_a_record_inside_a_body_is_none(self, build, queue_offset):
        built = build()
        inner = Record(topic=b"t", body=b"forged", queue_offset=queue_offset, physical_offset=LAYOUT.size)
        assert built.append(body=encode(inner)) == 0
        built.append()
        built.dispatch()
        assert built.log.record(LAYOUT.size, built.end) == encode(inner)
        with pytest.raises(NoRecordHere, match="no queue holds"):
            ask(built, "query_offset", offset=LAYOUT.size)

    def test_a_record_below_its_queues_minimum_is_found_by_nothing(self, build):
        """As the retention of its topic cuts it; the log and the index still have it."""
        built = build()
        built.topics(t=1)
        offsets = [built.append(keys="k", unique_key="u") for _ in range(4)]
        built.dispatch()
        built.ends.raise_min(built.ends.find(b"t", 0), 3)
        assert ask(built, "bounds", topic="t").facts["queues"] == [{"queue": 0, "min": 3, "max": 4}]
        for op in ("query_key", "query_unique_key"):
            key = "k" if op == "query_key" else "u"
            answer = ask(built, op, topic="t", key=key)
            assert [bytes(record) for record in answer.records] == [built.records[offsets[3]]]
            assert answer.facts["damaged"] == 0
        with pytest.raises(NoRecordHere, match="number 2 of a queue is there, which begins at 3 by now"):
            ask(built, "query_offset", offset=offsets[2])
        assert ask(built, "query_offset", offset=offsets[3]).facts["found"] == 1
        assert ask(built, "offset_by_time", topic="t", queue=0, time=0).facts == {"offset": 3}
        assert ask(built, "store_times", places=[["t", 0, 2], ["t", 0, 3]]).facts["times"][0] == -1
        assert ask(built, "queue_entries", topic="t", queue=0, offset=2).facts["entries"] == []

    def test_a_blank_is_none(self, build):
        built = build()
        first = built.append(body=b"y" * 40_000)
        built.append(body=b"y" * 40_000)
        built.dispatch()
        with pytest.raises(NoRecordHere, match="MAGIC"):
            ask(built, "query_offset", offset=first + len(built.records[first]))

    def test_a_half_message_has_no_queue_and_is_found(self, build):
        built = build()
        at = built.append(sys_flag=TRANSACTION_PREPARED)
        built._waiting.clear()
        built.dispatch()
        assert len(ask(built, "query_offset", offset=at).records) == 1

    def test_a_committed_one_is_in_its_queue(self, build):
        built = build()
        at = built.append(sys_flag=TRANSACTION_COMMIT)
        built.dispatch()
        assert len(ask(built, "query_offset", offset=at).records) == 1

    def test_a_property_crc_of_another_record_is_damage_only_for_an_operator_who_insists(self, build):
        built = build()
        at = built.append(keys="k", crc="1234567890")
        built.dispatch()
        for op, facts in (("query_offset", {"offset": at}), ("query_key", {"topic": "t", "key": "k"})):
            assert [bytes(record) for record in ask(built, op, **facts).records] == [built.records[at]]
        built.settings = built.settings.model_copy(update={"force_verify_prop_crc": True})
        with pytest.raises(RecordDamaged, match="__CRC32#"):
            ask(built, "query_offset", offset=at)


class TestById:
    def test_the_id_of_a_stored_message(self, build):
        built = build()
        at = built.fill(2)[1]
        found = ask(built, "query_id", id=encode_offset_id(Host(bytes([10, 0, 0, 1]), 10911), at))
        assert [bytes(record) for record in found.records] == [built.records[at]]

    def test_the_id_of_another_broker(self, build):
        built = build()
        at = built.fill(2)[1]
        with pytest.raises(NoRecordHere, match=r"10\.0\.0\.2:10911"):
            ask(built, "query_id", id=encode_offset_id(Host(bytes([10, 0, 0, 2]), 10911), at))

    def test_what_is_no_id(self, build):
        with pytest.raises(IllegalMessageId):
            ask(build(), "query_id", id="hello")


@pytest.mark.parametrize(
    "question",
    [
        {},
        {"op": "drop_everything"},
        {"op": 7},
        {"op": "route"},
        {"op": "route", "topic": 7},
        {"op": "offset_by_time", "topic": "t", "queue": "0", "time": 1},
        {"op": "query_offset", "offset": 1.5},
        {"op": "query_id", "id": None},
        {"op": "query_key", "topic": "t"},
    ],
    ids=str,
)
def test_a_question_that_is_none(build, question):
    with pytest.raises(MalformedFrame):
        lookup(build()).answer(question)
