"""Extension units and filter bitmaps: what reput writes of them, and what a kill or a cut leaves (spec 3.5, 7.3)."""

import json

import numpy as np
import pytest

from tests.filter.bits import may_match
from tests.log.stores import QUEUE_FILE
from towline.filter.bloom import Bloom
from towline.filter.subscriptions import FilterTable
from towline.log.files.config_file import ConfigFile
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.queues.consume_queue_ext import ConsumeQueueExtFiles, is_address
from towline.reput.extensions import ExtensionWriter
from towline.reput.queues import QueueDispatcher
from towline.runtime.positions import Duty, Position
from towline.runtime.queue_ends import QueueEnds

from .test_reput import Bench, Killed

EXT_FILE = 400  # bytes: a few units
ON = {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": EXT_FILE}
FILTERING = ON | {"enable_calc_filter_bit_map": True}
BLOOM = Bloom()


def units_of(bench, bitmap_size=BLOOM.size):
    """{(topic, queue id): (physical offsets, Units)} of everything that is published."""
    queues = ConsumeQueueFiles(bench.store.consumequeue, QUEUE_FILE, 8)
    files = ConsumeQueueExtFiles(bench.store.consumequeue_ext, EXT_FILE, 8)
    found = {}
    for end in QueueEnds.open(bench.runtime.queue_ends):
        topic, entries = end.topic.decode(), []
        while len(entries) < end.max_offset:
            entries += list(queues.read(topic, end.queue_id, len(entries), 1000))
        codes = np.array([entry["tags_code"] for entry in entries[: end.max_offset]], dtype=np.int64)
        assert is_address(codes).all()
        places = [int(entry["physical_offset"]) for entry in entries[: end.max_offset]]
        found[topic, end.queue_id] = places, files.read(topic, end.queue_id, codes, bitmap_size)
    return found


def check_units(bench):
    times = {stored.at: stored.timestamp for stored in bench.maker.records}
    found = units_of(bench)
    assert {queue: places for queue, (places, _) in found.items()} == bench.expected_queues()
    for places, units in found.values():
        assert units.found.all()
        assert units.store_timestamps.tolist() == [times[place] for place in places]
        assert not units.tags_codes.any()  # these records have no tag


def subscribe(bench, **expressions):
    """Saves config/consumerFilter.json as serve does: one group for each expression, all for Topic0."""
    table = FilterTable(BLOOM)
    for group, expression in expressions.items():
        table.register(group, "Topic0", expression, now=1)
    bench.store.config.mkdir(exist_ok=True)
    ConfigFile(bench.store.config / "consumerFilter.json").save(table.content())
    return table


def test_every_entry_points_to_a_unit_with_its_tag_and_time_over_many_files(tmp_path):
    bench = Bench(tmp_path, **ON)
    bench.fill()
    bench.work(bench.agent())
    check_units(bench)
    files = ConsumeQueueExtFiles(bench.store.consumequeue_ext, EXT_FILE, 8)
    assert len(files.bases("Topic0", 0)) > 1
    assert bench.indexed() == bench.expected_index()


@pytest.mark.parametrize("step", ["before the units", "between units and queues", "between queues and their ends"])
def test_a_kill_leaves_no_unit_missing_and_no_entry_astray(tmp_path, monkeypatch, step):
    bench = Bench(tmp_path, **ON)
    bench.fill(60)
    bench.work(bench.agent())
    bench.fill(60)
    put, write = ExtensionWriter.put, QueueDispatcher._write

    def dying_put(self, batch, one):
        if step != "before the units":
            put(self, batch, one)
        if step != "between queues and their ends":
            raise Killed

    def dying_write(self, one):
        write(self, one)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(ExtensionWriter, "put", dying_put)
        patched.setattr(QueueDispatcher, "_write", dying_write)
        with pytest.raises(Killed):
            bench.work(bench.agent())
    bench.work(bench.agent())
    check_units(bench)


def test_units_of_entries_that_were_cut_off_are_gone_when_the_queue_goes_on(tmp_path):
    bench = Bench(tmp_path, **ON)
    bench.fill(40)
    bench.work(bench.agent())
    files = ConsumeQueueExtFiles(bench.store.consumequeue_ext, EXT_FILE, 8)
    end = files.end_of("Topic0", 0)
    stale = np.full((30, 34), 7, dtype=np.uint8)
    files.write("Topic0", 0, end, stale)
    bench.fill(4)
    bench.work(bench.agent())
    check_units(bench)
    assert files.end_of("Topic0", 0) == end + 20
    assert not any(files._load("Topic0", 0, end + 20, EXT_FILE - (end + 20) % EXT_FILE))


def test_units_begin_behind_those_of_before_when_they_were_off_for_a_while(tmp_path):
    bench = Bench(tmp_path, **ON)
    bench.fill(20)
    bench.work(bench.agent())
    bench.settings = bench.settings.model_copy(update={"enable_consume_queue_ext": False})
    bench.fill(20)
    bench.work(bench.agent())
    bench.settings = bench.settings.model_copy(update={"enable_consume_queue_ext": True})
    bench.fill(20)
    bench.work(bench.agent())
    files = ConsumeQueueExtFiles(bench.store.consumequeue_ext, EXT_FILE, 8)
    codes = ConsumeQueueFiles(bench.store.consumequeue, QUEUE_FILE, 8).read("Topic0", 0, 0, 16)["tags_code"]
    addresses = codes.astype(np.int64)
    assert is_address(addresses).tolist() == [True] * 5 + [False] * 5 + [True] * 5
    assert files.read("Topic0", 0, addresses[is_address(addresses)], 0).found.all()


def test_bitmaps_say_which_subscriptions_a_record_may_match(tmp_path):
    bench = Bench(tmp_path, **FILTERING)
    table = subscribe(bench, some="KEYS IN ('k0', 'k4', 'k8')", none="KEYS = 'other'", every="KEYS IS NOT NULL")
    bench.fill(60)
    bench.work(bench.agent())
    assert bench.positions.get(Position.FILTERS) == table.fingerprint
    check_units(bench)
    numbers = {stored.at: number for number, stored in enumerate(bench.maker.records)}
    for (topic, _), (places, units) in units_of(bench).items():
        assert units.mapped.all() == (topic == "Topic0")
        if topic != "Topic0":
            continue
        wanted = {"some": [numbers[at] in (0, 4, 8) for at in places], "every": [True] * len(places)}
        wanted["none"] = [False] * len(places)
        for number, row in enumerate(units.bitmaps):
            bits = {p for group, hits in wanted.items() if hits[number] for p in BLOOM.positions(group, "Topic0")}
            assert set(np.flatnonzero(np.unpackbits(row, bitorder="little")).tolist()) == bits
        assert not may_match(units.bitmaps, BLOOM.positions("none", "Topic0")).any()


def test_a_slave_writes_units_without_bitmaps(tmp_path):
    bench = Bench(tmp_path, broker_role="SLAVE", **FILTERING)
    subscribe(bench, every="KEYS IS NOT NULL")
    bench.fill(20)
    bench.positions.writer(Position.CONFIRMED, Duty.RECEIVE).advance(bench.maker.end)
    bench.work(bench.agent())
    check_units(bench)
    assert not any(units.mapped.any() for _, units in units_of(bench).values())


def test_a_changed_subscription_counts_from_the_next_batch_on_and_is_confirmed(tmp_path):
    bench = Bench(tmp_path, **FILTERING)
    first = subscribe(bench, group="KEYS = 'other'")
    bench.fill(8)
    agent = bench.agent()
    bench.work(agent)
    assert bench.positions.get(Position.FILTERS) == first.fingerprint
    second = subscribe(bench, group="KEYS IS NOT NULL")
    assert first.fingerprint != second.fingerprint
    agent.do_work()
    assert bench.positions.get(Position.FILTERS) == second.fingerprint
    bench.fill(8)
    bench.work(agent)
    _, units = units_of(bench)["Topic0", 0]
    assert may_match(units.bitmaps, BLOOM.positions("group", "Topic0")).tolist() == [False] * 2 + [True] * 2


def test_a_file_that_cannot_be_read_changes_nothing_and_is_reported(tmp_path, caplog):
    bench = Bench(tmp_path, **FILTERING)
    table = subscribe(bench, group="KEYS IS NOT NULL")
    agent = bench.agent()
    bench.work(agent)
    for path in bench.store.config.iterdir():
        path.write_text(json.dumps({"filterDataByTopic": {"Topic0": {"groupFilterData": {"g": {}}}}}))
    bench.fill(8)
    bench.work(agent)
    assert bench.positions.get(Position.FILTERS) == table.fingerprint
    assert "subscriptions stay as they are" in caplog.text


def test_extension_files_of_which_nothing_is_left_are_removed(tmp_path):
    bench = Bench(tmp_path, **ON)
    bench.fill()
    agent = bench.agent()
    bench.work(agent)
    files = ConsumeQueueExtFiles(bench.store.consumequeue_ext, EXT_FILE, 8)
    before = files.bases("Topic0", 0)
    removed = agent._extensions.delete_expired("Topic0", 0, 20)
    assert removed > 0
    assert files.bases("Topic0", 0) == before[removed:]
    codes = ConsumeQueueFiles(bench.store.consumequeue, QUEUE_FILE, 8).read("Topic0", 0, 20, 10)["tags_code"]
    assert files.read("Topic0", 0, codes.astype(np.int64), 0).found.all()
