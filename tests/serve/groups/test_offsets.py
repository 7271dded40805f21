"""Offsets: where a group begins, what a commit does, resets, lag, topics that go, and the file they are kept in."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from towline.errors import UnknownTopic
from towline.log.files.config_file import ConfigFile
from towline.serve.groups.errors import GroupRefused, Refusal
from towline.serve.groups.offsets import NONE, Offsets

from .faces import Room

RETRY = {"%RETRY%g": {"expression": "*", "type": "TAG"}, "t": {"expression": "*", "type": "TAG"}}


class TestBeginning:
    @pytest.mark.parametrize(("where", "at"), [("first", 10), ("last", 100), (1_700_000_000_000, 55)])
    def test_the_first_join_decides_for_every_queue(self, room: Room, where: str | int, at: int):
        room.times = dict.fromkeys(range(4), 55)
        room.join("a", **{"from": where})
        assert room.offsets() == dict.fromkeys("0123", at)

    def test_whoever_joins_later_changes_nothing(self, room: Room):
        room.join("a", **{"from": "last"})
        room.ends[("t", 0)] = (10, 200)
        room.join("b", **{"from": "last"})
        assert room.offsets()["0"] == 100

    def test_queues_that_come_later_are_read_from_their_first_message(self, room: Room):
        room.join("a", **{"from": "last"})
        room.queues = {**room.queues, "t": 5}
        room.ends[("t", 4)] = (0, 9)
        room.advance(1_000)
        room.join("a", **{"from": "last"})
        assert room.offsets()["4"] == 0

    def test_a_retry_topic_is_read_from_its_first_message(self, room: Room):
        room.queues = {**room.queues, "%RETRY%g": 1}
        room.ends["%RETRY%g", 0] = (0, 4)
        room.join("a", topics=RETRY, **{"from": "last"})
        assert room.offsets("%RETRY%g") == {"0": 0}
        assert room.offsets("t")["0"] == 100

    def test_a_broadcasting_member_stores_nothing(self, room: Room):
        room.join("a", model="broadcasting")
        assert room.offsets() == dict.fromkeys("0123", NONE)
        with pytest.raises(GroupRefused) as error:
            room.commit({"0": 5}, "a")
        assert error.value.refusal is Refusal.BROADCASTING


class TestCommitting:
    def test_is_for_many_queues_at_once_and_may_go_back(self, room: Room):
        room.join("a")
        assert room.commit({"0": 50, "1": 60, "3": 70}, "a") == {}
        assert room.offsets() == {"0": 50, "1": 60, "2": 10, "3": 70}
        assert room.commit({"0": 20}, "a") == {}
        assert room.offsets()["0"] == 20

    def test_stays_within_the_queue(self, room: Room):
        room.join("a")
        assert room.commit({"0": 101, "1": 3, "2": 100}, "a") == {"clamped": {"t": {"0": 100, "1": 10}}}
        assert room.told("group_list")["clamped"] == 2

    def test_names_queues_and_topics_that_are_not_there(self, room: Room):
        room.join("a")
        told = room.told("group_commit", group="g", member="a", offsets={"t": {"0": 50, "9": 1}, "nowhere": {"0": 1}})
        assert told == {"unknown": {"t": ["9"], "nowhere": ["0"]}}
        assert room.offsets()["0"] == 50

    def test_an_older_generation_moves_nothing_back(self, room: Room):
        before = room.join("a")["generation"]
        room.join("b")
        room.commit({"0": 80}, "b")
        assert room.commit({"0": 50, "1": 60}, "a", generation=before) == {"kept": {"t": {"0": 80}}}
        assert room.offsets() == {"0": 80, "1": 60, "2": 10, "3": 10}

    def test_a_member_that_was_given_up_moves_nothing_back(self, room: Room):
        room.join("a")
        room.advance(11_000)
        room.join("b")
        room.commit({"0": 80}, "b")
        assert room.commit({"0": 50, "1": 90}, "a") == {"kept": {"t": {"0": 80}}}
        assert room.offsets()["1"] == 90

    @pytest.mark.parametrize(
        "offsets",
        [7, {"t": 5}, {"t": {"0": -1}}, {"t": {"0": "5"}}, {"t": {"-1": 5}}, {"t": {"0": True}}, {"t": {"0": 2**63}}],
    )
    def test_bad_ones_are_refused_whole(self, room: Room, offsets: object):
        room.join("a")
        with pytest.raises(GroupRefused) as error:
            room.told("group_commit", group="g", member="a", offsets=offsets)
        assert error.value.refusal is Refusal.ILLEGAL_QUESTION

    def test_an_unknown_group_has_no_offsets(self, room: Room):
        with pytest.raises(GroupRefused) as error:
            room.offsets(group="nobodys")
        assert error.value.refusal is Refusal.UNKNOWN_GROUP
        room.join("a")
        with pytest.raises(UnknownTopic):
            room.offsets("nowhere")


class TestEpochs:
    def test_what_was_read_under_an_earlier_master_holds_as_far_as_its_epoch_went(self, room: Room, caplog):
        room.join("a")
        room.epoch_ends = {("t", 0): 30, ("t", 1): 90}
        assert room.commit({"0": 50, "1": 50}, member="a", epoch=255) == {"clamped": {"t": {"0": 30}}}
        assert {queue: room.offsets()[queue] for queue in "01"} == {"0": 30, "1": 50}
        assert room.told("group_list")["clamped"] == 1
        assert "its offset 50 of queue 0 of t was read in epoch 255, which ended at 30" in caplog.text

    def test_what_was_read_in_this_epoch_is_not_compared(self, room: Room):
        room.join("a")
        room.epoch_ends = {("t", 0): 30}
        assert room.commit({"0": 50}, member="a", epoch=256) == {}
        assert room.commit({"0": 60}, member="a") == {}
        assert room.offsets()["0"] == 60

    def test_an_old_master_does_not_take_what_was_read_under_a_later_one(self, room: Room):
        room.join("a")
        with pytest.raises(GroupRefused) as refused:
            room.commit({"0": 5}, member="a", epoch=257)
        assert refused.value.code == "NOT_MASTER"

    @pytest.mark.parametrize("epoch", [-1, "1", 1.5, None, True])
    def test_what_is_no_epoch_is_refused(self, room: Room, epoch: object):
        room.join("a")
        with pytest.raises(GroupRefused, match="epoch of group_commit"):
            room.commit({"0": 5}, member="a", epoch=epoch)


class TestResetting:
    @pytest.mark.parametrize(
        ("to", "at"), [("first", 10), ("last", 100), ({"timestamp": 5}, 33), ({"offset": 44}, 44), ({"offset": 1}, 10)]
    )
    def test_to_anywhere_in_the_queue(self, room: Room, to: object, at: int):
        room.times = dict.fromkeys(range(4), 33)
        room.join("a")
        assert room.reset(to) == dict.fromkeys("0123", at)
        assert room.reset({"offset": 60}, queue=2) == {"2": 60}

    def test_members_are_told_and_what_they_had_read_before_does_not_count(self, room: Room):
        before = room.join("a")["generation"]
        number = room.watch("a", before)
        room.reset("first")
        told = room.answers[number]
        assert told["resets"] == {"t": told["generation"]}
        assert room.commit({"0": 90}, "a", generation=before) == {"kept": {"t": {"0": 10}}}
        assert room.commit({"0": 15}, "a", generation=told["generation"]) == {}
        assert room.offsets()["0"] == 15

    @pytest.mark.parametrize(
        ("facts", "error"),
        [({"to": "middle"}, GroupRefused), ({"to": {"offset": -1}}, GroupRefused), ({"queue": 4}, GroupRefused),
         ({"topic": "nowhere"}, UnknownTopic), ({"group": "nobodys"}, GroupRefused)],
    )  # fmt: skip
    def test_bad_ones_are_refused(self, room: Room, facts: dict[str, object], error: type[Exception]):
        room.join("a")
        with pytest.raises(error):
            room.told("group_reset", **({"group": "g", "topic": "t", "to": "first"} | facts))


class TestAdministration:
    def test_lag_and_owners(self, room: Room):
        room.join("a")
        room.join("b")
        room.commit({"0": 50, "1": 100})
        shown = room.told("group_describe", group="g")
        assert [row["lag"] for row in shown["queues"]] == [50, 0, 90, 90]
        assert shown["lag"] == 230
        assert [row["owner"] for row in shown["queues"]] == ["a", "a", "b", "b"]
        room.lock("b", [["t", 0]])
        assert room.told("group_describe", group="g")["queues"][0]["owner"] == "b"

    def test_a_group_that_is_used_is_not_deleted(self, room: Room):
        room.join("a")
        with pytest.raises(GroupRefused) as error:
            room.told("group_delete", group="g")
        assert error.value.refusal is Refusal.GROUP_IN_USE
        room.told("group_leave", group="g", member="a", instance="a")
        room.until_answered(room.ask("group_delete", group="g"))
        assert room.told("group_list")["groups"] == []

    @pytest.mark.parametrize("given", [{"retryMaxTime": 3}, {"retryMaxTimes": "3"}, {"groupName": "x"}])
    def test_settings_that_are_none_are_refused(self, room: Room, given: dict[str, object]):
        with pytest.raises(GroupRefused) as error:
            room.told("group_configure", group="g", settings=given)
        assert error.value.refusal is Refusal.ILLEGAL_QUESTION

    def test_offsets_of_a_deleted_topic_are_dropped(self, room: Room):
        room.join("a", topics={name: {"expression": "*", "type": "TAG"} for name in ("t", "u")})
        room.queues = {"t": 4}
        room.advance(1_000)
        assert room.told("group_list")["groups"][0]["topics"] == ["t", "u"]  # a is still subscribed
        room.told("group_leave", group="g", member="a", instance="a")
        assert room.told("group_list")["groups"][0]["topics"] == ["t"]

    def test_without_any_topics_nothing_is_dropped(self, room: Room):
        room.join("a")
        room.queues = {}
        room.advance(1_000)
        room.queues = {"t": 4}
        assert room.offsets()["0"] == 10


class TestKeeping:
    def test_the_file_is_that_of_rocketmq(self, room: Room):
        room.join("a")
        room.commit({"0": 50})
        room.service.close()
        text = (room.store.config / "consumerOffset.json").read_text()
        assert '"offsetTable":{\n\t\t"t@g":{0:50,1:10,2:10,3:10\n\t\t}\n\t}' in text
        assert '"groupTopicMap":{\n\t\t"g":["t"]\n\t}' in text

    def test_nothing_is_written_while_nothing_changes(self, room: Room):
        room.join("a")
        room.advance(6_000)
        room.service.close()
        path = room.store.config / "consumerOffset.json"
        before = path.stat()
        room.begin()
        room.advance(30_000)
        room.service.close()
        assert path.stat().st_ino == before.st_ino

    def test_questions_wait_until_the_queues_are_as_long_as_they_were(self, room: Room):
        room.join("a", **{"from": "last"})
        room.settled = False
        room.begin()
        number = room.ask("group_commit", group="g", member="", offsets={"t": {"1": 90}})
        room.advance(100)
        assert number not in room.answers  # the queue may only be behind
        room.settled = True
        room.advance(100)
        assert room.answers[number] == {}

    def test_what_the_start_took_back_is_counted(self, room: Room):
        room.store.run.mkdir(exist_ok=True)
        room.store.recovery.write_text('{"clamped": {"consumerOffset.json": 3, "delayOffset.json": 1}}')
        room.begin()
        assert room.told("group_list")["clamped"] == 3

    def test_and_what_it_read_from_the_generation_before(self, room: Room):
        assert room.told("group_list")["backups"] == []
        room.store.run.mkdir(exist_ok=True)
        room.store.recovery.write_text('{"backups": ["subscriptionGroup.json", "topics.json"]}')
        room.begin()
        assert room.told("group_list")["backups"] == ["subscriptionGroup.json"]

    @pytest.mark.parametrize("damage", ["torn", "empty", "missing", "changed", "no table"])
    def test_a_damaged_file_is_replaced_by_the_one_before(
        self, room: Room, damage: str, caplog: pytest.LogCaptureFixture
    ):
        room.join("a")
        for at in (20, 30):
            room.commit({"0": at})
            room.begin()
        room.service.close()
        path = room.store.config / "consumerOffset.json"
        whole = path.read_bytes()
        harm: dict[str, Callable[[], Any]] = {
            "torn": lambda: path.write_bytes(whole[: len(whole) // 2]),
            "empty": lambda: path.write_bytes(b""),
            "missing": path.unlink,
            "changed": lambda: path.write_bytes(whole.replace(b"0:30", b"0:31")),
            "no table": lambda: path.write_text(json.dumps({"offsetTable": [1]})),
        }
        harm[damage]()
        room.begin()
        assert room.offsets()["0"] == 20
        assert "consumerOffset.json.bak is used" in caplog.text
        assert room.told("group_list")["backups"] == ["consumerOffset.json"]

    def test_an_odd_entry_of_a_real_brokers_files_is_named_and_the_others_stay(
        self, room: Room, caplog: pytest.LogCaptureFixture
    ):
        room.service.close()
        config = room.store.config
        offsets = {"t@g": {"0": 20, "1": -1}, "@h": {"0": 1}}
        (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
        settings = {"g": {"retryMaxTimes": 3, "consumeTimeoutMinute": 15.0}}
        (config / "subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": settings}))
        room.begin()
        room.join("a")
        assert room.offsets()["0"] == 20
        assert "'@h' is not topic@group" in caplog.text
        assert "queue '1' at -1 is no queue and offset" in caplog.text
        assert "of group 'g': consumeTimeoutMinute is 15.0" in caplog.text

    @pytest.mark.parametrize("name", ["consumerOffset.json", "subscriptionGroup.json"])
    def test_two_damaged_generations_are_refused_and_left_alone(self, room: Room, name: str):
        room.service.close()
        path = room.store.config / name
        path.write_bytes(b"{")
        room.begin()
        with pytest.raises(GroupRefused) as error:
            room.join("a")
        assert error.value.refusal is Refusal.OFFSETS_UNREADABLE
        assert name in str(error.value)
        room.service.close()
        assert path.read_bytes() == b"{"

    def test_a_failed_write_is_tried_again_and_told_to_who_waits(self, room: Room, tmp_path: Path):
        room.join("a")
        room.service.close()
        aside = tmp_path / "aside"
        room.store.config.rename(aside)
        number = room.ask("group_configure", group="g", settings={"retryMaxTimes": 3})
        with pytest.raises(AssertionError, match="cannot be written"):
            room.until_answered(number)
        aside.rename(room.store.config)
        room.advance(6_000)
        room.service.close()
        content = ConfigFile(room.store.config / "subscriptionGroup.json").load()
        assert content is not None
        assert content["subscriptionGroupTable"]["g"]["retryMaxTimes"] == 3


class OffsetsAreADictionaryWithinBounds(RuleBasedStateMachine):
    """Against a model: whatever is asked, an offset lies within its queue, and `changes` counts what a file misses."""

    topics = st.sampled_from(["t", "u"])
    groups = st.sampled_from(["g", "h"])
    queues = st.integers(0, 2)
    at = st.integers(0, 60)

    @initialize()
    def begin_empty(self) -> None:
        self.ends: dict[tuple[str, int], tuple[int, int]] = {}
        self.offsets = Offsets(lambda topic, queue: self.ends.get((topic, queue), (0, 0)))
        self.model: dict[tuple[str, str], dict[int, int]] = {}
        self.seen = (0, {})  # changes, snapshot

    def _clamped(self, topic: str, queue: int, at: int) -> int:
        low, end = self.ends.get((topic, queue), (0, 0))
        return min(max(at, low), end)

    @rule(topic=topics, queue=queues, more=st.integers(0, 20), gone=st.integers(0, 5))
    def a_queue_grows_and_loses_its_beginning(self, topic: str, queue: int, more: int, gone: int) -> None:
        low, end = self.ends.get((topic, queue), (0, 0))
        self.ends[topic, queue] = (min(low + gone, end + more), end + more)

    @rule(topic=topics, group=groups, asked=st.dictionaries(queues, at, min_size=1), forward=st.booleans())
    def commit(self, topic: str, group: str, asked: dict[int, int], forward: bool) -> None:
        done = self.offsets.commit(topic, group, asked, forward_only=forward)
        of = self.model.setdefault((topic, group), {})
        for queue, wanted in asked.items():
            allowed = self._clamped(topic, queue, wanted)
            assert (queue in done.clamped) == (allowed != wanted)
            kept = forward and of.get(queue, NONE) > allowed
            assert (queue in done.kept) == kept
            if not kept:
                of[queue] = allowed

    @rule(topic=topics, group=groups, count=st.integers(0, 3), last=st.booleans())
    def begin(self, topic: str, group: str, count: int, last: bool) -> None:
        self.offsets.begin(topic, group, count, lambda queue: 1 << 40 if last else 0)
        of = self.model.get((topic, group), {})
        known = bool(of)
        for queue in range(count):
            if queue not in of:
                wanted = self._clamped(topic, queue, 1 << 40 if last and not known else 0)
                self.model.setdefault((topic, group), of)[queue] = wanted

    @rule(group=groups)
    def forget_a_group(self, group: str) -> None:
        self.offsets.drop_group(group)
        self.model = {key: of for key, of in self.model.items() if key[1] != group}

    @rule(topic=topics)
    def forget_a_topic(self, topic: str) -> None:
        self.offsets.drop_topics({topic})
        self.model = {key: of for key, of in self.model.items() if key[0] != topic}

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        assert self.offsets.snapshot() == self.model

    @invariant()
    def every_difference_is_counted(self) -> None:
        changes, before = self.seen
        now = self.offsets.snapshot()
        assert now == before or self.offsets.changes > changes
        self.seen = (self.offsets.changes, now)


TestOffsetsAsAModel = OffsetsAreADictionaryWithinBounds.TestCase
TestOffsetsAsAModel.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_a_reset_counts_for_members_that_were_away_when_it_was_made(room: Room):
    generation = room.join("a")["generation"]
    room.commit({"0": 90}, "a", generation=generation)
    room.service.gone(b"a")
    room.advance(30_000)  # the group is not remembered for its members any more
    assert room.reset("first")["0"] == 10
    room.advance(30_000)
    told = room.join("a", generation=generation)
    assert told["resets"]["t"] > generation
    assert room.commit({"0": 95}, "a", generation=generation) == {"kept": {"t": {"0": 10}}}
    assert room.offsets()["0"] == 10


def test_resets_of_a_deleted_group_are_forgotten(room: Room):
    room.join("a")
    room.service.gone(b"a")
    room.reset("first")
    room.until_answered(room.ask("group_delete", group="g"))
    room.advance(30_000)
    assert room.join("a")["resets"] == {}


def test_a_reset_counts_for_members_that_were_away_over_a_restart_too(room: Room):
    generation = room.join("a")["generation"]
    room.commit({"0": 90}, "a", generation=generation)
    room.reset("first")
    room.begin()
    room.advance(1_000)
    told = room.join("a", generation=generation)
    assert told["resets"]["t"] > generation
    assert told["generation"] > told["resets"]["t"]
    assert room.commit({"0": 95}, "a", generation=generation) == {"kept": {"t": {"0": 10}}}
    assert room.commit({"0": 95}, "a", generation=told["generation"]) == {}
    room.until_answered(room.ask("group_reset", group="g", topic="t", to="first"))
    room.begin()  # and whoever had not even asked to come in again
    assert room.commit({"0": 95}, "a", generation=told["generation"]) == {"kept": {"t": {"0": 10}}}


def test_resets_go_with_their_topic_and_a_file_without_sense_is_damaged(room: Room, caplog: pytest.LogCaptureFixture):
    room.join("a")
    room.reset("first")
    file = ConfigFile(room.store.config / "consumerOffset.json")
    content = file.load() or {}
    assert set(content["towlineResets"]["g"]) == {"t"}
    for bad in ({"g": 7}, {"g": {"t": -1}}, {"g": {"t": 1 << 62}}, ["g"]):
        room.service.close()
        file.save(content)
        file.save(content | {"towlineResets": bad})
        with caplog.at_level(logging.WARNING):
            room.begin()
        assert "consumerOffset.json.bak is used" in caplog.text
        caplog.clear()
        assert room.join("a")["resets"] == content["towlineResets"]["g"]
    room.queues = {"u": 2}
    room.advance(1_000)
    room.service.close()
    assert "towlineResets" not in (file.load() or {})
