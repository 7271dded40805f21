"""Power cuts under load: SYNC_FLUSH loses nothing that was acknowledged, ASYNC_FLUSH a suffix within its window.

So does a transient pool, whose window is that of its commits and of the sync. Of a pair that acknowledges what is on
both disks either disk may lose its power, or both: nothing is lost.

The killed node's shared memory outlives these cuts, as no real one's would: a start must see by itself that the mounted
files are not those that were written to. Half of the starts find it gone.
"""

import json
import os
import random
import shutil
import threading
import time

import pytest

from tests.faults.noting import note
from tests.processes.name_cuts import NameCuts
from tests.processes.nodes import SEGMENT, Pair, TestNode, ended
from tests.processes.stored import Stored, check_same_log
from tests.processes.tracing import strace
from tests.processes.waiting import await_
from towline.places import Store
from towline.runtime.positions import Position

from .disk import SIZE, Disk
from .ledger import Ledger
from .mixed import MixedLoad

FLUSH_INTERVAL_MS = 200
# What ASYNC_FLUSH may lose: what was acknowledged during one pause and one sync of all that it had gathered. What a
# pool gathers is committed first, by pauses of their own.
MODES = {
    "SYNC_FLUSH": ({"flush_disk_type": "SYNC_FLUSH"}, 0.0),
    "ASYNC_FLUSH": ({"flush_disk_type": "ASYNC_FLUSH"}, 2 * FLUSH_INTERVAL_MS / 1000),
    "pool": (
        {"flush_disk_type": "ASYNC_FLUSH", "transient_store_pool_enable": True, "transient_store_pool_size": 3},
        4 * FLUSH_INTERVAL_MS / 1000,
    ),
}
BUSY_S = 1.5  # a machine that does other things as well
LOAD_S = (0.05, 0.8)
BYTES_MAX = 24 << 20


@pytest.fixture
def disk(tmp_path):
    made = Disk(tmp_path, SIZE)
    made.make()
    yield made
    made.end()


@pytest.fixture
def disks(tmp_path):
    """Of a master and of its slave."""
    made = [Disk(tmp_path / name, SIZE) for name in ("m", "s")]
    try:
        for each in made:
            each.root.mkdir()
            each.make()
        yield made
    finally:
        for each in made:
            each.end()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cuts", [pytest.param(3, id="3 cuts"), pytest.param(60, id="60 cuts", marks=pytest.mark.slow)])
@pytest.mark.timeout(900)
def test_a_power_cut_costs_no_more_than_was_said(disk, mode, cuts):
    seed = int(os.environ.get("TOWLINE_SEED") or random.SystemRandom().getrandbits(32))
    print(f"\nTOWLINE_SEED={seed}")
    draw = random.Random(seed)
    settings, window_s = MODES[mode]
    intervals = dict.fromkeys(("flush_interval_commit_log", "commit_interval_commit_log"), FLUSH_INTERVAL_MS)
    node = TestNode("master", disk.mounted / "store", ha_listen_port=0, **intervals, **settings)
    ending = ended(node)
    next(ending)
    bytes_max = min(BYTES_MAX, SIZE // 2 // cuts)  # a disk that is nearly full would lose its oldest segments
    ledger, lost, oldest = Ledger(node.store.commitlog, SEGMENT), 0, 0.0
    try:
        node.start()
        for number in range(cuts):
            load = MixedLoad(node.endpoint, ledger, number, draw.getrandbits(32), bytes_max=bytes_max)
            load.start()
            load.await_acked()
            threading.Event().wait(draw.uniform(*LOAD_S))
            node.kill_all(draw.getrandbits(16))
            cut_at = time.monotonic()
            load.stop()
            disk.cut()
            if draw.random() < 0.5 or mode == "pool":  # whose buffers no power cut leaves, whatever the files say
                shutil.rmtree(node.runtime)
            node.start()
            facts = json.loads(node.store.recovery.read_text())
            assert not facts["resumed"], facts
            if mode != "SYNC_FLUSH":
                given_up = ledger.give_up(facts["end"])
                lost += len(given_up)
                oldest = max([oldest, *(cut_at - ledger.acked_at[key] for key in given_up)])
            ledger.look(facts["end"], node.at(Position.APPENDED))
            print(f"cut {number}: ends at {facts['end']}, {lost} lost so far; {'; '.join(facts['notes'])}")
        print(f"{mode}: {cuts} cuts, acknowledged {len(ledger.acked) + lost}, lost {lost}, up to {oldest:.2f} s old")
        assert oldest <= window_s + BUSY_S
        check_all(node, ledger)
        note(cuts, acknowledged=len(ledger.acked) + lost, given_up=lost, doubled=ledger.doubles, seed=seed)
    finally:
        next(ending, None)


@pytest.mark.parametrize("cuts", [pytest.param(3, id="3 cuts"), pytest.param(60, id="60 cuts", marks=pytest.mark.slow)])
@pytest.mark.timeout(1800)
def test_a_power_cut_of_members_costs_nothing_that_was_acknowledged(disks, tmp_path, cuts):
    """Acknowledged means on both disks. The first cuts are of one, of the other, and of both at once."""
    seed = int(os.environ.get("TOWLINE_SEED") or random.SystemRandom().getrandbits(32))
    print(f"\nTOWLINE_SEED={seed}")
    draw = random.Random(seed)
    pair = Pair(tmp_path)
    for node, disk in zip(pair.nodes, disks, strict=True):
        node.store = Store((disk.mounted / "store").resolve())
    ending = ended(*pair.nodes)
    next(ending)
    bytes_max = min(BYTES_MAX, SIZE // 2 // cuts)
    ledger, kinds, slowest_s = Ledger(pair.master.store.commitlog, SEGMENT), ((0,), (1,), (0, 1)), 0.0
    try:
        pair.start()
        for number in range(cuts):
            gone = kinds[number] if number < len(kinds) else draw.choice(kinds)
            load = MixedLoad(pair.master.endpoint, ledger, number, draw.getrandbits(32), bytes_max=bytes_max)
            load.start()
            load.await_acked()
            threading.Event().wait(draw.uniform(*LOAD_S))
            for member in gone:
                pair.nodes[member].kill_all(draw.getrandbits(16))
            load.stop()
            for member in gone:
                disks[member].cut()
                shutil.rmtree(pair.nodes[member].runtime)
            slowest_s = max([slowest_s, *(pair.nodes[member].start() for member in gone)])
            pair.await_linked()
            start = json.loads(pair.master.store.recovery.read_text())["end"] if 0 in gone else ledger.looked
            ledger.look(start, pair.await_caught_up())
            roles = " and ".join(pair.nodes[member].role for member in gone)
            print(f"cut {number} of {roles}: {len(ledger.acked)} acknowledged, ends at {ledger.looked}")
        check_members(pair, ledger)
        note(cuts, acknowledged=len(ledger.acked), doubled=ledger.doubles, outage_s=slowest_s, seed=seed)
    finally:
        next(ending, None)


@strace
@pytest.mark.parametrize("cuts", [pytest.param(60, id="60 cuts", marks=pytest.mark.slow)])
@pytest.mark.timeout(1800)
def test_what_no_sync_kept_costs_nothing_that_was_promised(tmp_path, cuts):
    """Harder than any disk, whose journal keeps a name with the sync of another: it goes for sure, or at random."""
    seed = int(os.environ.get("TOWLINE_SEED") or random.SystemRandom().getrandbits(32))
    print(f"\nTOWLINE_SEED={seed}")
    draw = random.Random(seed)
    made = NameCuts(tmp_path)
    ending = ended(made.node)
    next(ending)
    kinds = (made.a_roll, made.a_new_queue, made.a_queue_file, made.a_unit_file, made.any_sync)
    try:
        for number in range(cuts):
            at, wanted = 1 + number // len(kinds), kinds[number % len(kinds)]
            share = draw.choice((0.5, 1.0))
            gone = made.cut(at, wanted, lambda share=share: draw.random() < share)
            print(f"cut {number} at {wanted.__name__} {at}: {len(gone)} names went")
        note(cuts, acknowledged=made.finish(), seed=seed)
    finally:
        next(ending, None)


def check_members(pair, ledger):
    """Both logs are the same, with all that was acknowledged in its queues."""
    end = pair.await_caught_up()
    assert pair.stop() == (True, True)
    for node in pair.nodes:
        stored = Stored(node.store, end)
        assert stored.check_queues() == sum(map(len, ledger.found.values()))
        stored.check_zeros_behind()
        stored.close()
    check_same_log(pair.master.store.commitlog, pair.slave.store.commitlog, end)


def check_all(node, ledger):
    """Queues and index follow the log again, and nothing stands behind its end."""
    end = node.at(Position.APPENDED)
    await_(lambda: node.at(Position.DISPATCHED) == end, 60.0, "the queues reach the end of the log")
    assert node.at(Position.LOG_MIN) == 0, "nothing was cleaned"
    assert node.stop()
    stored = Stored(node.store, end)
    assert stored.check_queues() == sum(map(len, ledger.found.values()))
    stored.check_zeros_behind()
    stored.close()
