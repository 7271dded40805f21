"""Sources of deliveries by an injected clock: levels, times, cancellations, clocks that step, starts after a crash."""

import random

import pytest

from tests.serve.building import NOON
from towline.format.record.forms import StoredForm, cancelling, delayed, timed
from towline.format.record.properties import CRC32, decode
from towline.format.wire.status import PutStatus
from towline.master.schedule import wheel
from towline.master.schedule.timers import ROWS_MAX, DeliveredMark, TimerState

from .delaying import FakePut, lane_of, made

HOUR_MS = 3_600_000


@pytest.fixture
def store(tmp_path):
    built = made(tmp_path, orders=4, other=1)
    yield built
    built.close()


def keys_of(store, due):
    return [decode(store.records[at][-1000:])["UNIQ_KEY"] if due else "" for at in due.positions.tolist()]


def number(due):
    return 0 if due is None else len(due.positions)


class TestLevels:
    def test_what_is_due_comes_in_order_and_no_sooner(self, store):
        for place in range(5):
            store.put(delayed("orders", 0, 1), f"k{place}", at_ms=100 * place)
        store.dispatch()
        level = store.level(1)
        assert number(level.due(10, NOON + 999)) == 0
        assert level.due_ms(NOON + 999) == 1
        assert number(level.due(10, NOON + 1000)) == 1
        assert number(level.due(10, NOON + 1350)) == 4
        assert number(level.due(3, NOON + 1350)) == 3, "not more than asked for"
        level.done(3, 77)
        assert (level.offset, level.end) == (3, 77)
        assert number(level.due(10, NOON + 1350)) == 1
        level.done(1, 0)
        assert number(level.due(10, NOON + 1350)) == 0
        assert level.due_ms(NOON + 1350) == 50
        level.done(1, 0)
        assert level.pending() == 0

    def test_a_clock_an_hour_ahead_makes_all_due_once(self, store):
        store.put(delayed("orders", 0, 2), "far")
        store.dispatch()
        level = store.level(2)
        assert number(level.due(10, NOON + 1000)) == 0
        assert number(level.due(10, NOON + 1000 + HOUR_MS)) == 1
        level.done(1, 0)
        assert number(level.due(10, NOON + 1001)) == 0

    def test_a_clock_set_back_an_hour_holds_nothing_for_longer_than_its_delay(self, store):
        store.put(delayed("orders", 0, 1), "before", at_ms=HOUR_MS)
        store.dispatch()
        level = store.level(1)
        assert number(level.due(10, NOON + HOUR_MS + 500)) == 0
        assert number(level.due(10, NOON + 500)) == 1, "further away than its level's delay: at once, as in RocketMQ"
        assert level.due_ms(NOON + 400) == 0

    def test_what_came_while_it_ran_waits_for_its_delay_though_the_clock_is_set_back(self, store):
        level = store.level(1)
        assert number(level.due(10, NOON + HOUR_MS)) == 0
        for place in range(3):
            store.put(delayed("orders", 0, 1), f"k{place}", at_ms=HOUR_MS)
        store.dispatch()
        assert number(level.due(10, NOON + HOUR_MS + 100)) == 0
        store.monotonic += 600
        assert number(level.due(10, NOON + 600)) == 0, "set back, 400 ms before its time"
        assert level.due_ms(NOON + 600) == 400
        store.put(delayed("orders", 0, 1), "after", at_ms=HOUR_MS)  # store times do not go back
        store.dispatch()
        store.monotonic += 399
        assert number(level.due(10, NOON + 999)) == 0
        level.due(10, NOON)  # the look that the clock wakes
        store.monotonic += 1
        assert number(level.due(10, NOON + 1000)) == 3
        level.done(3, 0)
        assert number(level.due(10, NOON + 1001)) == 0
        store.monotonic += 599
        assert number(level.due(10, NOON + 1600)) == 0
        store.monotonic += 400
        assert number(level.due(10, NOON + 2000)) == 1

    def test_the_address_of_an_ext_unit_is_no_time(self, store):
        at = store.end
        store.put(delayed("orders", 0, 1), "ext")
        store._codes[at] = -(1 << 62)
        store.dispatch()
        level = store.level(1, store_time=NOON + 200)
        assert number(level.due(10, NOON + 1199)) == 0
        assert number(level.due(10, NOON + 1200)) == 1

    def test_an_offset_beyond_the_queue_goes_back_to_its_end(self, store):
        store.put(delayed("orders", 0, 1), "a")
        store.dispatch()
        level = store.level(1)
        level.offset = 9
        assert level.clamp() == 8
        assert level.offset == 1

    def test_what_left_the_log_before_its_time_is_counted(self, store):
        for place in range(5):
            store.put(delayed("orders", 0, 1), f"k{place}")
        store.dispatch()
        level = store.level(1)
        level.offset = 1
        store.ends.move_min(store.ends.find(b"SCHEDULE_TOPIC_XXXX", 0), 3)
        assert number(level.due(10, NOON + 1000)) == 2
        assert (level.offset, level.gone) == (3, 2)


class TestTimers:
    @pytest.mark.parametrize("rows_max", [ROWS_MAX, 12])
    def test_what_left_the_log_before_its_time_is_counted_once(self, store, rows_max, monkeypatch):
        monkeypatch.setattr(wheel, "NEAR", 3)
        monkeypatch.setattr(wheel, "_BLOCK_BITS", 4)
        for place in range(200):
            store.put(timed("orders", 0, NOON + 1000 + place), f"k{place}")
        store.dispatch()
        timers, put = store.timers(rows_max=rows_max), FakePut()
        lane = lane_of(timers, store.restorer(), put)
        while timers.scan():
            pass
        place = store.ends.find(b"rmq_sys_wheel_timer", 0)
        timers.safe_ms = NOON + HOUR_MS
        lane.cycle(0, NOON + 1003)
        assert put.sent[-1].keys == ["k0", "k1", "k2", "k3"]
        store.ends.move_min(place, 100)
        timers.scan()
        assert timers.gone == 96 - 4, "block by block, without those that are under way"
        assert timers.pending() == 200 - 96
        put.answer(PutStatus.PUT_OK, at=1)
        lane.cycle(1, NOON + 1003)
        store.ends.move_min(place, 200)
        timers.scan()
        assert (timers.gone, timers.pending(), timers.in_memory) == (200 - 4, 0, 0)
        assert timers.through().start == 200

    def test_what_left_before_it_was_read_is_counted_where_it_is_known(self, store):
        for place in range(10):
            store.put(timed("orders", 0, NOON + 1000 + place), f"k{place}")
        store.dispatch()
        store.ends.move_min(store.ends.find(b"rmq_sys_wheel_timer", 0), 8)
        timers = store.timers(TimerState(NOON + 1001, 1, 6, 2, 0))
        timers.clamp()
        timers.scan()
        assert (timers.doubtful, timers.gone, timers.pending()) == (4, 2, 2)

    def test_order_is_that_of_time(self, store):
        for key, at in (("c", 300), ("a", 100), ("b", 200), ("a2", 100)):
            store.put(timed("orders", 0, NOON + at), key)
        store.dispatch()
        timers, put = store.timers(), FakePut()
        lane = lane_of(timers, store.restorer(), put)
        assert timers.scan() == 4
        timers.safe_ms = NOON + 200
        lane.cycle(0, NOON + 1000)
        assert put.sent[-1].keys == ["a", "a2", "b"], "nothing whose cancellation may not be known yet"
        put.answer(PutStatus.PUT_OK)
        timers.safe_ms = NOON + 1000
        lane.cycle(1, NOON + 250)
        assert not put.waits, "it is not due"
        lane.cycle(1, NOON + 300)
        assert put.sent[-1].keys == ["c"]

    def test_what_is_cancelled_is_left_out_and_counts_as_through(self, store):
        for key in ("a", "b", "c"):
            store.put(timed("orders", 0, NOON + 100), key)
        store.put(timed("orders", 0, NOON + 101), "b")
        store.put(cancelling("orders", 0, NOON + 100, "b"), "cancel")
        store.put(cancelling("orders", 0, NOON + 100, "nobody"), "cancel2")
        store.dispatch()
        timers, put = store.timers(), FakePut()
        lane = lane_of(timers, store.restorer(), put)
        timers.scan()
        timers.safe_ms = NOON + 500
        assert timers.caught_up
        lane.cycle(0, NOON + 500)
        put.answer(PutStatus.PUT_OK, at=1000)
        lane.cycle(1, NOON + 500)
        assert put.sent[0].keys == ["a", "c", "b"], "the other time is another message"
        assert timers.through() == TimerState(NOON + 101, 3, 4, 4, 2)

    def test_a_clock_set_back_makes_it_wait_for_its_time(self, store):
        store.put(timed("orders", 0, NOON + 1000), "a")
        store.dispatch()
        timers = store.timers()
        timers.scan()
        timers.safe_ms = NOON + HOUR_MS
        assert number(timers.due(10, NOON + 1000 - HOUR_MS)) == 0
        assert timers.due_ms(NOON + 1000 - HOUR_MS) >= HOUR_MS - 1000
        assert number(timers.due(10, NOON + 1000 + HOUR_MS)) == 1

    @pytest.mark.parametrize("seed", range(6, 12))
    @pytest.mark.parametrize("rows_max", [ROWS_MAX, 12])
    def test_a_crash_at_any_point_loses_nothing_and_doubles_what_came_after_the_offsets(
        self, store, seed, rows_max, monkeypatch
    ):
        monkeypatch.setattr(wheel, "NEAR", 3 if rows_max == 12 else wheel.NEAR)
        draw = random.Random(seed)
        expected, delivered, cancelled = {}, [], set()
        state, at_save, now = TimerState(), 0, 0
        timers, put = store.timers(state, rows_max), FakePut()
        lane = lane_of(timers, store.restorer(), put)
        counter = doubles = dropped = 0
        for _ in range(80):
            now += draw.randrange(60)
            for _ in range(draw.randrange(4)):
                due, counter = now + draw.randrange(-80, 400), counter + 1
                store.put(timed("orders", counter % 4, NOON + due), f"k{counter}")
                expected[f"k{counter}"] = due
            open_keys = [key for key, due in expected.items() if due > now and key not in cancelled]
            if open_keys and draw.random() < 0.3:
                key = draw.choice(open_keys)
                cancelled.add(key)
                store.put(cancelling("orders", 0, NOON + expected[key], key), f"c{counter}-{key}")
            store.dispatch()
            timers.scan()
            dropped += timers.in_memory < timers.pending()
            timers.safe_ms = NOON + now if timers.caught_up else timers.safe_ms
            lane.cycle(now, NOON + now)
            if put.waits and draw.random() < 0.9:
                delivered += put.sent[-1].keys
                put.answer(PutStatus.PUT_OK)
                lane.cycle(now, NOON + now, start_new=False)
                if draw.random() < 0.4:
                    state, at_save = timers.through(), len(delivered)
            if draw.random() < 0.1:  # killed; what was under way may have been stored
                if put.waits and draw.random() < 0.5:
                    delivered += put.sent[-1].keys
                doubles += len(delivered) - at_save
                timers, put = store.timers(state, rows_max), FakePut()
                lane = lane_of(timers, store.restorer(), put)
        assert (dropped > 0) is (rows_max == 12), "what is far away was not in memory for a while"
        while timers.scan() or timers.pending():
            timers.safe_ms = NOON + 10_000
            lane.cycle(10_000, NOON + 10_000)
            if put.waits:
                delivered += put.sent[-1].keys
                put.answer(PutStatus.PUT_OK)
        assert set(delivered) == expected.keys() - cancelled
        assert len(delivered) - len(set(delivered)) <= doubles

    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("rows_max", [ROWS_MAX, 12])
    def test_a_clock_that_steps_and_a_crash_at_any_point_double_no_more_than_a_crash_alone(
        self, store, seed, rows_max, monkeypatch
    ):
        monkeypatch.setattr(wheel, "NEAR", 3 if rows_max == 12 else wheel.NEAR)
        draw = random.Random(seed)
        expected, delivered, cancelled = {}, [], set()
        state, at_save, now = TimerState(), 0, 10_000
        timers, put = store.timers(state, rows_max), FakePut()
        lane = lane_of(timers, store.restorer(), put)
        counter = doubles = crashes = back = 0

        def cycle() -> None:
            store.dispatch()
            timers.scan()
            timers.safe_ms = NOON + now if timers.caught_up else timers.safe_ms
            sent = len(put.sent)
            lane.cycle(now, NOON + now)
            assert all(expected[key] <= now for each in put.sent[sent:] for key in each.keys), "nothing comes early"

        for _ in range(160):
            now += draw.randrange(60)
            if draw.random() < 0.08:
                now, timers.safe_ms, back = max(0, now - draw.choice((1, 40, 700, 3000))), 0, back + 1
            elif draw.random() < 0.03:
                now += 1500
            for _ in range(draw.randrange(3)):
                counter += 1
                expected[f"k{counter}"] = due = now + draw.randrange(1, 400)
                store.put(timed("orders", counter % 4, NOON + due), f"k{counter}")
            under_way = put.sent[-1].keys if put.waits else []
            over = cancelled.union(delivered, under_way)
            open_keys = [key for key, due in expected.items() if due > now and key not in over]
            if open_keys and draw.random() < 0.3:
                key = draw.choice(open_keys)
                cancelled.add(key)
                store.put(cancelling("orders", 0, NOON + expected[key], key), f"c{counter}-{key}")
            cycle()
            if put.waits and draw.random() < 0.9:
                delivered += put.sent[-1].keys
                put.answer(PutStatus.PUT_OK)
                lane.cycle(now, NOON + now, start_new=False)
                if draw.random() < 0.4:
                    state, at_save = timers.through(), len(delivered)
            if draw.random() < 0.1:
                crashes += 1
                if put.waits and draw.random() < 0.5:
                    delivered += put.sent[-1].keys
                doubles += len(delivered) - at_save
                timers, put = store.timers(state, rows_max), FakePut()
                lane = lane_of(timers, store.restorer(), put)
        assert min(crashes, back) > 2
        now = max(expected.values())
        while timers.scan() or timers.pending():
            cycle()
            if put.waits:
                delivered += put.sent[-1].keys
                put.answer(PutStatus.PUT_OK)
        assert set(delivered) == expected.keys() - cancelled
        assert len(delivered) - len(set(delivered)) <= doubles
        assert timers.through().earlier == ()

    def test_what_was_delivered_before_and_after_a_clock_went_back_is_through(self, store):
        def drive(timers, now):
            put = FakePut()
            lane = lane_of(timers, store.restorer(), put)
            while timers.scan():
                pass
            timers.safe_ms = now
            while not (lane.cycle(0, now) and not put.waits) and put.waits:
                put.answer(PutStatus.PUT_OK, at=1)
            return [key for sent in put.sent for key in sent.keys]

        now = NOON + HOUR_MS
        store.put(timed("orders", 0, now - 10), "before")
        store.dispatch()
        timers = store.timers()
        assert drive(timers, now) == ["before"]
        store.put(timed("orders", 0, NOON + HOUR_MS // 2), "waits")
        for place in range(50):
            store.put(timed("orders", 0, NOON + 1000 + place), f"k{place}")
        store.dispatch()
        assert len(drive(timers, NOON + 2000)) == 50
        for _ in range(3):
            timers = store.timers(timers.through())
            assert drive(timers, NOON + 3000) == []
        assert drive(timers, now) == ["waits"]
        assert timers.through() == TimerState(NOON + HOUR_MS // 2, 1, 52, 52, 0, (DeliveredMark(now - 10, 0, 1),))
        store.put(timed("orders", 0, now), "after")
        store.dispatch()
        assert drive(timers, now) == ["after"]
        assert timers.through().earlier == (), "what is delivered has passed it"


class TestLanes:
    @pytest.fixture
    def lane(self, store):
        for place in range(8):
            store.put(delayed("orders", place % 2, 1), f"k{place}")
        store.dispatch()
        self.level, self.put = store.level(1), FakePut()
        return lane_of(self.level, store.restorer(), self.put)

    def cycle(self, lane, now=0):
        lane.cycle(now, NOON + 5000)

    def test_delivered_is_what_was_answered(self, lane):
        self.cycle(lane)
        assert self.put.sent[0].groups == [(b"orders", 0, 4), (b"orders", 1, 4)]
        assert self.put.sent[0].keys == ["k0", "k2", "k4", "k6", "k1", "k3", "k5", "k7"]
        self.cycle(lane)
        assert len(self.put.sent) == 1, "one request at a time"
        assert self.level.offset == 0
        self.put.answer(PutStatus.FLUSH_DISK_TIMEOUT, at=5000)
        self.cycle(lane)
        assert (self.level.offset, lane.delivered) == (8, 8)
        assert self.level.end > 5000

    def test_an_answer_that_never_came_sends_it_again(self, lane):
        self.cycle(lane)
        self.put.answer(None)
        self.cycle(lane)
        assert len(self.put.sent) == 1
        self.cycle(lane, now=50)
        assert self.put.sent[1].keys == self.put.sent[0].keys

    def test_a_refusal_for_now_waits_as_long_as_it_says(self, lane):
        self.cycle(lane)
        self.put.answer(PutStatus.SYSTEM_BUSY, retry_after=700)
        self.cycle(lane)
        assert lane.due_ms(0) == 700
        self.cycle(lane, now=699)
        assert len(self.put.sent) == 1
        self.cycle(lane, now=700)
        assert len(self.put.sent) == 2

    @pytest.mark.parametrize("status", [PutStatus.NO_PERMISSION, PutStatus.TOPIC_NOT_EXIST, PutStatus.DISK_FULL])
    def test_what_is_refused_to_everybody_waits(self, lane, status):
        now = 0
        for _ in range(12):  # more often than it takes to halve a request down to one record
            self.cycle(lane, now=now)
            self.put.answer(status)
            self.cycle(lane, now=now)
            now += 5000
        self.cycle(lane, now=now)
        assert (lane.lost, len(self.put.sent[-1].keys)) == (0, 8)

    def test_a_bad_one_is_found_and_left_out(self, lane):
        bad, stored = "k5", []
        for _ in range(40):
            self.cycle(lane)
            if not self.put.waits:
                break
            keys = self.put.sent[-1].keys
            if bad in keys:
                self.put.answer(PutStatus.MESSAGE_ILLEGAL)
            else:
                stored += keys
                self.put.answer(PutStatus.PUT_OK)
        assert sorted(stored) == [f"k{place}" for place in range(8) if place != 5]
        assert (self.level.offset, lane.lost) == (8, 1)


class TestRestoring:
    def test_a_record_is_what_it_was_to_be(self, store):
        forms = [delayed("other", 0, 1), delayed("orders", 3, 1), timed("orders", 1, NOON)]
        for place, form in enumerate(forms):
            store.put(form, f"k{place}", reconsume_times=place, flag=7, sys_flag=0x100)
        store.dispatch()
        for form, level in ((forms[0], store.level(1)), (forms[2], store.timers())):
            put = FakePut()
            if form is forms[2]:
                level.scan()
                level.safe_ms = NOON + 1
            lane_of(level, store.restorer(), put).cycle(0, NOON + 5000)
            for record in put.sent[0].records:
                said = decode(record.properties)
                assert record.topic.decode() == said["REAL_TOPIC"]
                assert record.queue_id == int(said["REAL_QID"])
                assert record.body == b"body of " + said["UNIQ_KEY"].encode()
                assert (record.flag, record.born_timestamp, record.sys_flag & 0x700) == (7, NOON - 3, 0x100)
                assert record.reconsume_times == int(said["UNIQ_KEY"][1:])

    @pytest.mark.parametrize("with_crc", [False, True])
    def test_a_property_crc_comes_and_goes_with_the_setting(self, store, with_crc):
        plain = delayed("orders", 0, 1)
        for form in (plain, StoredForm(plain.topic, 0, (*plain.pairs, (CRC32, "0123456789")))):
            store.put(form, f"k{len(form.pairs)}")
        store.dispatch()
        put = FakePut()
        lane_of(store.level(1), store.restorer(with_crc=with_crc), put).cycle(0, NOON + 5000)
        assert len(put.sent[0].records) == 2
        for record in put.sent[0].records:
            assert (CRC32 in decode(record.properties)) is with_crc
            assert record.properties.endswith(b"\x02")

    def test_a_retry_topic_beyond_127_bytes_makes_a_record_of_version_2(self, store):
        topic = "%RETRY%" + "g" * 130
        store.topics(**{topic: 1, "orders": 4})
        store.put(delayed(topic, 0, 1), "k")
        store.dispatch()
        put = FakePut()
        lane_of(store.level(1), store.restorer(), put).cycle(0, NOON + 5000)
        assert put.sent[0].records[0].topic.decode() == topic

    def test_what_belongs_nowhere_is_left_out_and_counted(self, store, caplog):
        for place, topic in enumerate(("orders", "deleted", "orders")):
            store.put(delayed(topic, 9, 1), f"k{place}")
        store.dispatch()
        level, put = store.level(1), FakePut()
        lane = lane_of(level, store.restorer(), put)
        lane.cycle(0, NOON + 5000)
        assert put.sent[0].groups == [(b"orders", 1, 2)], "a queue that is no more: modulo those there are"
        for now in range(1, 4):
            assert (lane.lost, lane.delivered) == (0, 0), "counted when it is through, however often it is tried"
            put.answer(PutStatus.SYSTEM_BUSY)
            for ms in (0, 500):
                lane.cycle(now * 1000 + ms, NOON + 5000)
        put.answer(PutStatus.PUT_OK)
        lane.cycle(4000, NOON + 5000)
        assert (level.offset, lane.lost, lane.delivered) == (3, 1, 2)
        (message,) = (each.getMessage() for each in caplog.records if "left out" in each.getMessage())
        assert "topic deleted, unique key k1: there is no such topic" in message

    def test_where_topics_may_lag_one_that_nobody_deleted_is_made_and_waited_for(self, store):
        for place, topic in enumerate(("orders", "late", "deleted", "late", "%RETRY%late")):
            store.put(delayed(topic, 9 if place == 1 else 0, 1), f"k{place}")
        store.dispatch()
        store.topics({"deleted"}, orders=4)
        level, put = store.level(1), FakePut()
        lane = lane_of(level, store.restorer(), put, follows=True)
        for now in (0, 50):
            lane.cycle(now, NOON + 5000)
            assert not put.waits
        assert [(op, facts) for op, facts, _ in put.asked] == [
            ("create_topic", {"topic": "late", "queues": 10}),
            ("create_topic", {"topic": "%RETRY%late", "queues": 1}),
        ], "asked once"
        put.asked.pop()[2](False)
        lane.cycle(100, NOON + 5000)
        assert put.asked[-1][1]["topic"] == "%RETRY%late", "asked again"
        store.topics({"deleted"}, **{"orders": 4, "late": 10, "%RETRY%late": 1})
        lane.cycle(150, NOON + 5000)
        assert sorted(put.sent[-1].keys) == ["k0", "k1", "k3", "k4"]
        put.answer(PutStatus.PUT_OK)
        lane.cycle(151, NOON + 5000)
        assert (lane.lost, lane.delivered) == (1, 4)
