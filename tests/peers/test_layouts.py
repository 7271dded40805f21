"""`towline bench layouts`: both layouts hold what was put, every figure is its cell's own, sentences follow figures."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from peers.layouts import harness, process
from peers.layouts.cells import LAYOUTS, QUICK, Cell, Plan
from peers.layouts.load import Load, batches_of, bodies_of
from peers.layouts.log_per_queue import LogPerQueue
from peers.layouts.one_log import OneLog
from peers.layouts.pictures import KEPT, PUT, draw
from peers.layouts.process import drop
from peers.layouts.putting import ASYNC, ONE_LOG, PER_QUEUE, SYNC
from peers.layouts.reading import PartitionReader, QueueReader
from peers.layouts.recovering import recover_one_log, recover_partitions, walk_partitions
from peers.layouts.report import TOPICS, conclusions, markdown, sections
from peers.quote import pages
from tests.processes.waiting import Watch, await_
from towline.errors import BenchFailed
from towline.format.record import record
from towline.kafka.log.checking import check
from towline.kafka.log.partition import Partition
from towline.kafka.log.writer import PartitionWriter
from towline.limits import MIB
from towline.log.files.mapped_file import MappedFile
from towline.start import home

LOAD = Load(queues=5, together=4, group=8, segment=4 * MIB)
GROUPS = 6
START = "import sys; from towline.start import main; sys.exit(main())"
PROGRAM = [sys.executable, "-c", START, "bench", "layouts", "--quick"]
GONE_S = 60.0


def put(layout, load):
    """The first groups of a load, acknowledged and derived; how many messages each queue was given."""
    given = np.zeros(load.queues, np.int64)
    groups = load.then()
    for queues, rows in [*load.first(), *(next(groups) for _ in range(GROUPS))]:
        layout.prepare(queues, rows)
        layout.append()
        layout.sync()
        np.add.at(given, queues, load.together)
    layout.derive()
    return given.tolist()


@pytest.fixture
def stores(tmp_path):
    """Both layouts with the same load, and what each queue was given."""
    given = [put(OneLog(tmp_path / "one", LOAD), LOAD), put(LogPerQueue(tmp_path / "many", LOAD), LOAD)]
    assert given[0] == given[1]
    return tmp_path / "one", tmp_path / "many", given[0]


def bodies_in_the_log(store, queue):
    data = next((store / "commitlog").iterdir()).read_bytes()
    at, found = 0, []
    while int.from_bytes(data[at : at + 4], "big"):
        one = record.decode(data, at)
        found += [one.body] if one.queue_id == queue else []
        at += int.from_bytes(data[at : at + 4], "big")
    return found


def test_both_layouts_hold_the_same_bodies_in_each_queue_in_the_same_order(stores):
    one, many, given = stores
    for queue, count in enumerate(given):
        pieces = Partition(many / f"bench-{queue}").read()
        bodies = [body for piece in pieces for body in piece.records.value.to_list()]
        assert bodies == bodies_in_the_log(one, queue)
        assert len(bodies) == count


def test_a_partition_has_the_bytes_that_the_writer_of_partitions_would_write(stores, tmp_path):
    _, many, _ = stores
    written = next((many / "bench-2").glob("*.log")).read_bytes()
    with PartitionWriter(tmp_path / "writer", "bench", 2) as writer:
        writer.append_batches(np.frombuffer(written, np.uint8))
    assert next((tmp_path / "writer" / "bench-2").glob("*.log")).read_bytes() == written


def test_what_is_recovered_and_read_is_what_was_put(stores):
    one, many, given = stores
    assert recover_one_log(one, LOAD.segment)[1] == recover_partitions(many) == walk_partitions(many) == sum(given)
    assert not [fault for each in many.iterdir() for fault in check(each)]
    for cold in (False, True):
        reader = QueueReader(one, LOAD, cold=cold)
        assert [reader.read(queue) for queue in range(LOAD.queues)] == given
        reader.close()
    assert [PartitionReader(many).read(queue) for queue in range(LOAD.queues)] == given


def test_a_torn_end_is_cut_from_either(stores):
    one, many, given = stores
    log = next((many / "bench-0").glob("*.log"))
    os.truncate(log, log.stat().st_size - 1)
    assert recover_partitions(many) == sum(given) - LOAD.together
    record_size = int.from_bytes(next((one / "commitlog").iterdir()).read_bytes()[:4], "big")
    with next((one / "commitlog").iterdir()).open("r+b") as file:
        file.seek(sum(given) * record_size - 200)  # in the body of the last record
        file.write(b"\0" * 100)
    (one / "durable").unlink()  # it would say that the record was on the disk, and the damage were no torn end
    assert recover_one_log(one, LOAD.segment)[1] == sum(given) - 1


def test_the_messages_of_a_batch_are_those_of_its_bodies():
    data = batches_of(LOAD)
    assert data.shape[0] == len(bodies_of(LOAD))
    assert bodies_of(LOAD)[3][1] in data[3].tobytes()


def test_what_is_dropped_is_in_memory_no_more(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * MIB)
    drop(tmp_path, everything=False)
    mapped = MappedFile.open(path, MIB, writable=False)
    assert mapped.resident(0, MIB) == 0
    mapped.release()


def result_of(figures):
    """A result whose cells have what `figures` says of a layout at a number of queues."""
    rows = [
        {"system": layout, "queues": queues, "flush": flush, "figures": figures(layout, queues), "rounds": [1]}
        for flush, layout in LAYOUTS
        for queues in (1, 10_000)
    ]
    machine = {"cpus": 2, "cpu": "a CPU", "memory_gb": 16.0, "load": 0.1, "load_after": 0.2}
    return {
        "made": "2026-01-02T03:04:05+00:00",
        "plan": Plan(queues=(1, 10_000)).facts(),
        "versions": {},
        "rows": rows,
        "absent": {"kafka": "it is not installed"},
        "failed": {},
        "skipped": ["round 2: one-log, 1 queues"],
        "machine": machine,
        "seconds": 60.0,
    }


def even(layout, queues):
    return dict.fromkeys({topic.figure for topic in TOPICS} | {"walk_s"}, 2.0)


def test_a_table_has_the_figures_of_its_own_cells():
    numbers = {ONE_LOG: 10.0, PER_QUEUE: 20.0}

    def each(layout, queues):
        return even(layout, queues) | {"files": numbers.get(layout, 0.0) * queues}

    found = {section.title: section for section in sections(result_of(each))}
    assert found["files"].rows == (("1", "10", "20", "2.00"), ("10,000", "100,000", "200,000", "2.00"))
    assert found["not measured"].rows == (
        ("kafka", "it is not installed"),
        ("round 2: one-log, 1 queues", "no time"),
    )


@pytest.mark.parametrize(
    ("one", "many", "said"),
    [
        ({1: 3.0, 10_000: 6.0}, 2.0, "**one log** is ahead at every number of queues, 1.5 to 3.0 times."),
        ({1: 1.0, 10_000: 6.0}, 2.0, "**one log** is ahead at 10,000 queues, 3.0 times; **a log per partition** is "
         "ahead at 1 queue, 2.0 times."),
        ({1: 2.0, 10_000: 1.0}, 2.1, "**a log per partition** is ahead at 10,000 queues, 2.1 times; level at 1 queue."),
    ],
    ids=["everywhere", "each somewhere", "level"],
)  # fmt: skip
def test_a_sentence_says_who_is_ahead_where_and_how_far(one, many, said):
    def each(layout, queues):
        return even(layout, queues) | {"per_s": one[queues] if layout == ONE_LOG else many}

    assert f"put, SYNC_FLUSH, messages a second: {said}" in conclusions(result_of(each))


def test_syncs_of_a_group_are_told_and_what_is_missing_is_not_claimed():
    def each(layout, queues):
        return even(layout, queues) | {"syncs_per_group": 1.0 if layout == ONE_LOG else 1.0 + queues / 1000}

    result = result_of(each)
    assert any(said.endswith("one log 1.0, log per partition 1.0 to 11.0.") for said in conclusions(result))
    result["plan"]["queues"] = (1, 10, 10_000)
    assert "files: level at 1 and 10,000 queues." in conclusions(result)


def test_of_times_the_smaller_one_is_ahead():
    def each(layout, queues):
        return even(layout, queues) | {"whole_s": 1.0 if layout == ONE_LOG else 4.0}

    wanted = (
        "after kill -9, s until every queue can be read: **one log** is ahead at every number of queues, 4.0 times."
    )
    assert wanted in conclusions(result_of(each))


def test_a_run_with_no_cell_at_all_is_told_without_a_table(tmp_path):
    nothing = result_of(even) | {"rows": []}
    assert conclusions(nothing) == []
    assert [section.title for section in sections(nothing)] == ["not measured"]
    assert "no time" in markdown(nothing)
    assert [path.name for path in draw(tmp_path, nothing)] == [PUT, KEPT]


def test_the_page_quotes_the_last_run():
    page = home() / "docs/layouts.md"
    assert dict(pages(home()))[page] == page.read_text(encoding="utf-8"), "run `python -m peers.quote`"


def test_what_would_need_more_descriptors_than_a_process_may_have_is_left_out_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(harness.resource, "getrlimit", lambda _: (100, 100))
    with pytest.raises(harness.Missing, match="10,512 descriptors are needed, a process may have 100"):
        harness._layout(Cell(PER_QUEUE, 10_000, SYNC), Plan(), tmp_path)


def test_every_layout_is_measured_in_turns_and_servers_once():
    turns = Plan(queues=(1, 10_000), server_queues=(1,), servers=("kafka",), rounds=2, rounds_many=1).turns()
    assert [cell.system for _, cell in turns[:5]] == [layout for _, layout in LAYOUTS]
    assert [(number, cell.queues) for number, cell in turns if (cell.flush, cell.system) == (SYNC, ONE_LOG)] == [
        (0, 1),
        (0, 10_000),
        (1, 1),
    ]
    assert sum(cell.is_server for _, cell in turns) == 2


FIGURES = {"per_s": 5.0}


def test_a_run_that_was_broken_off_goes_on_where_it_was(tmp_path, monkeypatch):
    done = []

    def layout(cell, plan, directory):
        done.append(cell)
        if len(done) == 3:
            raise KeyboardInterrupt
        return FIGURES

    monkeypatch.setattr(harness, "_layout", layout)
    with pytest.raises(KeyboardInterrupt):
        harness.measure(QUICK, kept_in=tmp_path)
    result = harness.measure(QUICK, kept_in=tmp_path, resume=True)
    assert [cell for _, cell in QUICK.turns()] == [*done[:2], *done[3:]]
    assert len(result["rows"]) == len(QUICK.turns())
    assert list(tmp_path.iterdir()) == []


def test_what_fails_is_named_and_the_others_are_measured(monkeypatch):
    def layout(cell, plan, directory):
        if cell.system == PER_QUEUE and cell.flush == ASYNC:
            raise BenchFailed("it is broken")
        return FIGURES

    monkeypatch.setattr(harness, "_layout", layout)
    plan = replace(QUICK, queues=(1, 20))
    result = harness.measure(plan)
    assert list(result["failed"]) == [f"{PER_QUEUE}: 1 queue, {ASYNC}", f"{PER_QUEUE}: 20 queues, {ASYNC}"]
    assert "it is broken" in markdown(result)
    assert len(result["rows"]) == len(plan.turns()) - 2


def test_a_figure_is_the_median_of_its_rounds(monkeypatch):
    speeds = {number: iter((9.0, 1.0, 2.0)) for number in range(len(LAYOUTS))}
    places = list(LAYOUTS)
    monkeypatch.setattr(
        harness, "_layout", lambda cell, *_: {"per_s": next(speeds[places.index((cell.flush, cell.system))])}
    )
    rows = harness.measure(replace(QUICK, queues=(1,), rounds=3))["rows"]
    assert [(row["figures"]["per_s"], row["rounds"]) for row in rows] == [(2.0, [9, 1, 2])] * len(LAYOUTS)


def test_a_message_that_is_lost_fails_the_cell(stores):
    one, _, given = stores
    with pytest.raises(BenchFailed, match=f"{sum(given) + 1} messages were acknowledged, {sum(given)} are there"):
        process.recovered(one, LOAD, "", sum(given) + 1, one_log=True)


def test_ctrl_c_leaves_no_process_and_no_file():
    with tempfile.TemporaryDirectory(prefix="tl-") as root:
        temporary, out = Path(root) / "temp", Path(root) / "out"
        temporary.mkdir()
        running = subprocess.Popen(
            [*PROGRAM, "--output", str(out)],
            env=os.environ | {"TMPDIR": str(temporary)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            await_(lambda: list(temporary.glob("*/*/store")), GONE_S, "a store is made")
            watch = Watch([running.pid, *(each.pid for each in psutil.Process(running.pid).children(recursive=True))])
            running.send_signal(signal.SIGINT)
            _, said = running.communicate(timeout=GONE_S)
        finally:
            running.kill()
            running.communicate()
        watch.await_gone(GONE_S)
        assert running.returncode == 130, said.decode()
        assert b"Traceback" not in said
        assert list(temporary.iterdir()) == []
        assert not out.exists()


@pytest.fixture(scope="module")
def ran():
    """The quick form as a person runs it: result, names in --output, what is left of it below TMPDIR."""
    with tempfile.TemporaryDirectory(prefix="tl-") as root:
        temporary, out = Path(root) / "temp", Path(root) / "out"
        temporary.mkdir()
        done = subprocess.run(
            [*PROGRAM, "--json", "--output", str(out)],
            env=os.environ | {"TMPDIR": str(temporary)},
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        result = json.loads(done.stdout)
        assert json.loads((out / "layouts.json").read_text()) == result
        yield result, sorted(path.name for path in out.iterdir()), list(temporary.iterdir())


def test_a_run_measures_every_cell_and_leaves_its_result_and_pictures_alone(ran):
    result, kept, left = ran
    assert result["failed"] == result["absent"] == {}
    assert result["skipped"] == left == []
    assert kept == sorted(["layouts.json", PUT, KEPT])
    cells = {(row["flush"], row["system"], row["queues"]) for row in result["rows"]}
    assert cells == {(flush, layout, queues) for flush, layout in LAYOUTS for queues in QUICK.queues}
    assert len(sections(result)) == len(TOPICS) + 1  # and the walks


def test_each_cell_has_figures_of_its_own_measurement(ran):
    rows = {(row["flush"], row["system"], row["queues"]): row["figures"] for row in ran[0]["rows"]}
    (many,) = QUICK.queues
    for (flush, system, _), figures in rows.items():
        assert all(value >= 0 for value in figures.values())
        assert figures["messages"] > 0
        assert figures["p50_us"] <= figures["p99_us"] <= figures["max_us"]
        if flush == ASYNC:
            assert figures["recovered"] >= figures["acknowledged"] > figures["messages"]
            assert figures["recover_s"] <= figures["whole_s"]
            assert figures["disk_per_byte"] > 1
            assert ("walk_s" in figures) == (system == PER_QUEUE)
        elif system == PER_QUEUE:
            assert figures["syncs_per_group"] > many / 2  # each partition that a group touches
        else:
            assert 1 <= figures["syncs_per_group"] < 2  # the durable offset is one more now and then
    assert len({figures["per_s"] for figures in rows.values()}) == len(rows)
    assert rows[ASYNC, PER_QUEUE, many]["files"] == 5 * many
    assert many < rows[ASYNC, ONE_LOG, many]["files"] < 2 * many
