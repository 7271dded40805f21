"""Cutting off what the master does not have: the result is that of a store that never had it, whatever kill came."""

import json

import pytest

from tests.log.situations import poke
from tests.log.sound import copy_of
from tests.log.stores import NOON, QUEUE_FILE, SEGMENT, SETTINGS, StoreMaker
from towline.errors import MalformedFile
from towline.format.files.checkpoint import Checkpoint
from towline.format.files.epochs import Epoch
from towline.log.errors import TruncationRefused
from towline.log.files.config_file import ConfigFile
from towline.log.recovery.offset_rollback import LATE_MS
from towline.log.recovery.recovery import recover
from towline.log.recovery.truncation import STEPS, truncate
from towline.log.repair.verify import verify
from towline.log.repair.verify_report import Weight
from towline.log.state.checkpoint_file import CheckpointFile
from towline.log.state.durable_file import DurableFile
from towline.log.state.epoch_file import EpochFile
from towline.log.state.truncation_file import Truncation, TruncationFile, epochs_of, kept_tails

from .test_verdicts import derive

COUNT = 400  # three segments


class Killed(Exception):
    """At this step."""


def grown(root, count=COUNT):
    maker = StoreMaker(root)
    maker.fill(count)
    maker.dispatch(maker.end)
    maker.durable(maker.end, queues=maker.end)
    return maker


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    made = grown(tmp_path_factory.mktemp("original"))
    EpochFile(made.store).save((Epoch(257, 0), Epoch(514, made.records[150].at), Epoch(770, made.records[380].at)))
    config = made.store.config
    config.mkdir(exist_ok=True)
    queues = {"0": 999, "1": 3}
    ConfigFile(config / "consumerOffset.json").save({"offsetTable": {"TopicA@g": queues, "TopicB@g": {"0": 75}}})
    ConfigFile(config / "delayOffset.json").save({"offsetTable": {"3": 12}})
    ConfigFile(config / "timerOffset.json").save({"deliveredDue": NOON, "upTo": 9, "from": 8, "cancelsFrom": 1})
    return made


@pytest.fixture
def maker(original, tmp_path):
    return copy_of(original, tmp_path / "store")


@pytest.fixture(scope="module")
def expected(original, tmp_path_factory):
    """What is left of it when nothing comes between."""
    made = copy_of(original, tmp_path_factory.mktemp("expected") / "store")
    ordered(made, made.records[100].at)
    run(made)
    return state_of(made)


def ordered(maker, point, **other):
    facts = {"point": point, "end": maker.end, "epoch": 770, "node": 1, "master": 2, "why": "why", "time": NOON}
    TruncationFile(maker.store).save(Truncation(**(facts | {"accept_loss": True} | other)))


def run(maker, reached=lambda _: None):
    return truncate(maker.store, SEGMENT, QUEUE_FILE, reached)


def finished(maker):
    recovered = recover(maker.store, SETTINGS)
    derive(maker, recovered)
    return recovered


def state_of(maker):
    folders = (maker.store.commitlog, maker.store.consumequeue, maker.store.config, maker.store.diverged)
    found = {path: path.read_bytes() for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()}
    return {path.relative_to(maker.root): data for path, data in found.items()}, EpochFile(maker.store).load()


@pytest.mark.parametrize("number", [0, 1, 30, 150, 151, 300, 399])
def test_the_store_is_then_one_that_never_had_the_tail(maker, tmp_path, number):
    point, before = maker.records[number].at, maker.log_bytes()
    ordered(maker, point)
    run(maker)
    recovered = finished(maker)
    never = grown(tmp_path / "never", number)
    finished(never)
    assert (recovered.end, recovered.cut_bytes) == (point, 0)
    assert maker.log_bytes() == never.log_bytes().ljust(len(maker.log_bytes()), b"\0")
    for queue in sorted(never.store.consumequeue.rglob("0*")):
        if queue.is_file():
            assert (
                maker.store.consumequeue / queue.relative_to(never.store.consumequeue)
            ).read_bytes() == queue.read_bytes()
    assert verify(maker.store, SETTINGS).weight is Weight.NOTE
    kept = b"".join((maker.store.diverged / name).read_bytes() for name, _, _ in kept_tails(maker.store)[0].files)
    assert kept.replace(b"\0", b"") == before[point:].replace(b"\0", b"")
    assert not maker.store.truncate.exists()


KILLS = [(step, 1) for step in STEPS] + [("copy", 2), ("copy", 3), ("segment", 2), ("segment", 3)]


@pytest.mark.parametrize(("step", "nth"), KILLS)
def test_killed_before_any_step_the_next_start_comes_to_the_same_end(maker, expected, step, nth):
    ordered(maker, maker.records[100].at)
    left = nth

    def reached(here):
        nonlocal left
        left -= here == step
        if not left:
            raise Killed

    with pytest.raises(Killed):
        run(maker, reached)
    assert maker.store.truncate.exists()
    run(maker)
    assert state_of(maker) == expected


@pytest.mark.parametrize("number", [100, 150, 399])
def test_what_may_have_been_delivered_in_the_part_that_goes_waits_again(maker, number):
    first, file = maker.records[number], ConfigFile(maker.store.config / "timerOffset.json")
    file.save({"deliveredDue": NOON * 2, "towlineLogEnd": first.at + 1})
    ordered(maker, first.at)
    run(maker)
    assert file.load()["deliveredDue"] == first.timestamp - LATE_MS
    assert file.load()["towlineLogEnd"] == first.at


def test_what_was_delivered_before_the_part_that_goes_stays_so(maker):
    file = ConfigFile(maker.store.config / "timerOffset.json")
    file.save({"deliveredDue": NOON * 2, "towlineLogEnd": maker.records[100].at})
    ordered(maker, maker.records[100].at)
    run(maker)
    assert file.load()["deliveredDue"] == NOON * 2


def test_offsets_go_back_with_the_ends_of_their_queues(maker):
    ordered(maker, maker.records[100].at)
    _, notes = run(maker)
    read = {
        name: ConfigFile(maker.store.config / f"{name}Offset.json").load() for name in ("consumer", "delay", "timer")
    }
    assert read["consumer"] == {"offsetTable": {"TopicA@g": {"0": 25, "1": 3}, "TopicB@g": {"0": 25}}}
    assert read["delay"] == {"offsetTable": {"3": 0}}
    due = min(NOON, maker.records[100].timestamp)
    assert read["timer"].items() >= {"deliveredDue": due, "upTo": 0, "from": 0, "cancelsFrom": 0}.items()
    assert any("2 offsets of consumerOffset.json" in note for note in notes)


def test_queues_that_are_behind_the_point_take_no_offset_back(maker):
    durable = DurableFile(maker.root)
    durable.save(
        durable.load().__class__(flushed=maker.end, segment_base=2 * SEGMENT, queues_durable=maker.records[40].at)
    )
    durable.close()
    for path in maker.store.consumequeue.rglob("*"):
        if path.is_file():
            path.unlink()
    ordered(maker, maker.records[360].at)
    run(maker)
    offsets = ConfigFile(maker.store.config / "consumerOffset.json").load()
    assert offsets["offsetTable"] == {"TopicA@g": {"0": 90, "1": 3}, "TopicB@g": {"0": 75}}


def test_epochs_end_with_the_log_and_what_is_kept_says_whose_it_was(maker):
    point = maker.records[300].at
    ordered(maker, point)
    kept, _ = run(maker)
    assert EpochFile(maker.store).load() == (Epoch(257, 0), Epoch(514, maker.records[150].at))
    third = maker.records[380].at
    assert epochs_of(kept) == [(514, point, third), (770, third, maker.end)]
    assert (kept.cut.master, kept.cut.why, kept.cut.time) == (2, "why", NOON)
    assert maker.end - point - 200 < kept.size < maker.end - point  # but for the zeros behind a blank


def test_a_second_truncation_keeps_its_own_tail_beside_the_first(maker):
    ordered(maker, maker.records[200].at)
    run(maker)
    finished(maker)
    ordered(maker, maker.records[100].at, end=maker.records[200].at, time=NOON + 1)
    run(maker)
    assert [kept.cut.point for kept in kept_tails(maker.store)] == [maker.records[n].at for n in (200, 100)]
    assert finished(maker).end == maker.records[100].at


@pytest.mark.parametrize("where", ["durable", "checkpoint"])
def test_what_was_confirmed_is_not_cut_off_without_the_operators_word(maker, where):
    confirmed = maker.records[200].at
    if where == "checkpoint":
        maker.durable(maker.end, queues=0)
        CheckpointFile(maker.root).save(Checkpoint(confirm_phy_offset=confirmed))
    else:
        maker.durable(maker.end, queues=confirmed)
    before = state_of(maker)
    ordered(maker, maker.records[199].at, accept_loss=False)
    with pytest.raises(TruncationRefused, match=str(confirmed)) as refused:
        run(maker)
    assert "accept-loss" in refused.value.advice
    assert state_of(maker) == before
    maker.store.accept_loss.touch()
    ordered(maker, maker.records[199].at)
    run(maker)
    assert not maker.store.accept_loss.exists()
    maker.durable(confirmed, queues=confirmed)


def test_up_to_the_confirmed_end_it_is_cut_without_a_word(maker):
    maker.durable(maker.end, queues=maker.records[200].at)
    ordered(maker, maker.records[200].at, accept_loss=False)
    run(maker)
    assert finished(maker).end == maker.records[200].at


@pytest.mark.parametrize(
    "text", ["{}", "{", '{"point": -1}', '{"point": 5, "end": 4}'], ids=["empty", "torn", "less", "wrong"]
)
def test_an_order_that_cannot_be_read_is_refused_by_name(maker, text):
    ordered(maker, 0)
    known = json.loads(maker.store.truncate.read_text())
    known.pop("towlineCheck")
    maker.store.truncate.write_text(json.dumps(known | json.loads(text)) if text.startswith('{"') else text)
    before = state_of(maker)
    with pytest.raises(MalformedFile, match=r"truncate\.json"):
        run(maker)
    assert state_of(maker) == before


def test_no_order_no_truncation(maker):
    assert run(maker) is None


def test_what_was_kept_must_be_readable(maker):
    ordered(maker, maker.records[200].at)
    kept, _ = run(maker)
    poke(kept.path, 30, b"####")
    with pytest.raises(MalformedFile, match=r"diverged"):
        kept_tails(maker.store)
