"""Questions that nobody means well with, and too many of them: serve stays, and its files stay good."""

from typing import Any

import pytest

from towline.format.wire.frames import json_part, read_json
from towline.log.files.config_file import ConfigFile
from towline.serve.groups.errors import GroupRefused
from towline.serve.groups.store import GroupStore

from .faces import Room

HALF_A_PAIR = "a\ud800"
MANY = 400  # of anything that must not be one call within the other
STAR = {"expression": "*", "type": "TAG"}


def nested(depth: int) -> dict[str, Any]:
    return {"a": nested(depth - 1)} if depth else {}


def test_a_queue_of_thousands_of_digits_is_no_queue(room: Room) -> None:
    with pytest.raises(GroupRefused, match="queue numbers"):
        room.commit({"9" * 5_000: 1})


def test_half_a_surrogate_pair_is_sent_back_as_it_came(room: Room) -> None:
    answer = room.commit({"0": 1}, topic=HALF_A_PAIR)
    assert read_json(json_part(answer)) == {"unknown": {HALF_A_PAIR: ["0"]}}


@pytest.mark.parametrize(
    "settings",
    [
        {"attributes": {"a": HALF_A_PAIR}},
        {"attributes": {"a": float("nan")}},
        {"attributes": {"a": "x" * 20_000}},
        {"groupRetryPolicy": nested(20)},
        {"groupRetryPolicy": nested(700)},
        {"retryMaxTimes": 1 << 31},
        {"retryQueueNums": -2},
    ],
    ids=["half a pair", "nan", "large", "deep", "deeper", "huge", "negative"],
)
def test_settings_that_no_broker_could_read_are_refused(room: Room, settings: dict[str, Any]) -> None:
    with pytest.raises(GroupRefused, match="settings of a group"):
        room.told("group_configure", group="g", settings=settings)
    assert room.configure(retryMaxTimes=3)["retryMaxTimes"] == 3
    room.begin()
    assert room.configure()["retryMaxTimes"] == 3


def test_what_cannot_be_written_stops_no_other_file(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.join("a")
    save = ConfigFile.save

    def fails(file: ConfigFile, content: dict[str, Any]) -> None:
        if file.path.name == "subscriptionGroup.json":
            raise RecursionError
        save(file, content)

    monkeypatch.setattr(ConfigFile, "save", fails)
    number = room.ask("group_configure", group="g", settings={"retryMaxTimes": 3})
    while number not in room.refused:
        room.service.cycle(room.clock.ms)
    monkeypatch.undo()
    room.commit({"0": 50})
    room.begin()
    assert room.offsets()["0"] == 50
    assert room.configure()["retryMaxTimes"] == 3  # it was tried again


def test_a_link_that_ends_with_many_members_waiting_on_it(room: Room) -> None:
    for number in range(MANY):
        answer = room.join("a", group=f"g{number}", peer=b"p")
        facts = {"group": f"g{number}", "member": "a", "instance": "a", "generation": answer["generation"]}
        room.ask("group_watch", b"p", **facts)
    room.gone.add(b"p")
    room.service.gone(b"p")  # as a pull shows that cannot be answered
    assert all(row["members"] == 0 for row in room.told("group_list", b"q")["groups"])


def test_names_are_limited(room: Room) -> None:
    room.join("a")
    with pytest.raises(GroupRefused, match="at most 1024 names"):
        room.told("group_offsets", group="g", topics=["t"] * 2_000)
    with pytest.raises(GroupRefused, match="at most 255 characters"):
        room.join("b", instance="i" * 1_000)
    with pytest.raises(GroupRefused, match="expressions in UTF-8"):
        room.join("b", topics={"t": {"expression": HALF_A_PAIR, "type": "TAG"}})
    with pytest.raises(GroupRefused, match="of at most 255 characters"):
        room.join("a", topics={"t": STAR, "x" * 1_000: STAR})


def test_changes_do_not_pile_up_behind_a_slow_disk(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    store: GroupStore = room.service._store
    submitted = []
    submit = store._saver.submit
    monkeypatch.setattr(store._saver, "submit", lambda *job: submitted.append(job) or submit(*job))
    monkeypatch.setattr(store._saver, "finished", list)  # the disk takes its time
    for number in range(100):
        room.join("a", group=f"g{number}")
        room.service.cycle(room.clock.ms)
    last = room.ask("group_configure", group="g99", settings={"retryMaxTimes": 3})
    assert len(submitted) <= 2  # one of each file
    assert last not in room.answers
    monkeypatch.undo()
    assert room.until_answered(last)["settings"]["retryMaxTimes"] == 3
    table = ConfigFile(room.store.config / "subscriptionGroup.json").load()
    assert table is not None
    assert table["subscriptionGroupTable"]["g99"]["retryMaxTimes"] == 3
    assert len(table["subscriptionGroupTable"]) >= 100
