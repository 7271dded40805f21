"""Which topics a master makes, and that they are kept."""

import pytest

from towline.errors import (
    IllegalTopic,
    MalformedFile,
    TooManyQueues,
    TopicChangeRefused,
    TopicExists,
    TopicProtected,
    UnknownTopic,
)
from towline.format.files.topics import (
    RETENTION_BYTES,
    RETENTION_MS,
    SYSTEM_TOPICS,
    TEMPLATE_TOPIC,
    DeletedTopic,
    TopicConfig,
    TopicTable,
    read_topics,
    topics_content,
)
from towline.limits import RETENTION_BYTES_MAX, RETENTION_BYTES_MIN, RETENTION_MS_MAX, RETENTION_MS_MIN
from towline.log.files.config_file import ConfigFile
from towline.log.state.topics_file import TopicsConfig, TopicsFile
from towline.master.put.topics import NO_RETENTION, TopicChange, Topics


class StillClock:
    def now_ms(self):
        return 1

    monotonic_ms = now_ms


class Settled(Topics):
    """Every change is written and holds at once."""

    def _stage(self, *tables):
        super()._stage(*tables)
        self._save()


def topics(tmp_path, kind=Settled, **options):
    defaults = {"auto_create": True, "queue_nums_default": 8, "queues_max": 10}
    made = kind(TopicsConfig(tmp_path / "topics.json"), StillClock(), **(defaults | options))
    made.load()
    return made


def test_a_topic_made_by_itself_has_the_queues_that_the_node_offers_and_is_there_after_a_restart(tmp_path):
    assert topics(tmp_path).route("orders").write_queue_nums == 8
    assert topics(tmp_path, auto_create=False).write_queues(b"orders") == 8


def test_an_unknown_topic_is_refused_when_topics_are_not_made_by_themselves(tmp_path):
    with pytest.raises(UnknownTopic, match="orders"):
        topics(tmp_path, auto_create=False).route("orders")


def test_a_topic_is_not_made_twice(tmp_path):
    made = topics(tmp_path)
    made.create("orders", 1)
    with pytest.raises(TopicExists):
        made.create("orders", 2)


def test_no_topic_is_made_whose_queues_the_node_cannot_hold(tmp_path):
    made = topics(tmp_path)
    made.create("orders", 8)
    with pytest.raises(TooManyQueues, match="10"):
        made.create("refunds", 3)
    assert made.create("refunds", 2).write_queue_nums == 2


def test_without_any_file_the_topics_of_the_queues_are_adopted(tmp_path):
    made = topics(tmp_path)
    adopted = made.adopt([(b"orders", 0, 1), (b"orders", 5, 2), ("%RETRY%bücher".encode(), 0, 1)])
    assert adopted == ["%RETRY%bücher", "orders"]
    assert made.names() == ["%RETRY%bücher", "orders"]
    assert (made.get("orders").read_queue_nums, made.write_queues(b"orders")) == (8, 8)
    assert made.write_queues("%RETRY%bücher".encode()) == 1
    assert topics(tmp_path).names() == ["%RETRY%bücher", "orders"]


@pytest.mark.parametrize(("seen", "queues"), [(0, 8), (9, 10)])
def test_an_adopted_topic_has_as_many_queues_as_a_producer_may_have_been_told(tmp_path, seen, queues):
    made = topics(tmp_path, queues_max=100)
    made.adopt([(b"orders", seen, 1)])
    assert made.get("orders").read_queue_nums == made.write_queues(b"orders") == queues


def test_where_that_is_more_than_the_node_holds_it_has_those_that_were_seen(tmp_path):
    made = topics(tmp_path)
    made.adopt([(b"orders", 2, 1), (b"refunds", 0, 1)])
    assert (made.write_queues(b"orders"), made.write_queues(b"refunds")) == (3, 1)


def test_a_promoted_node_adopts_what_its_master_had_no_time_to_tell(tmp_path):
    before = topics(tmp_path, queues_max=100)
    before.create("known", 2)
    before.create("deleted", 2)
    before.delete("deleted", 1000, {0: 5, 1: 0})
    made = topics(tmp_path, queues_max=100)
    made.adopt([(b"known", 7, 1), (b"deleted", 0, 5), (b"new", 1, 1)], followed=True)
    assert made.names() == ["known", "new"]
    assert (made.write_queues(b"known"), made.write_queues(b"new")) == (2, 8)
    assert made.floors() == {(b"deleted", 0): 5, (b"deleted", 1): 0}


def test_a_topic_that_the_file_leaves_out_stays_unknown(tmp_path):
    topics(tmp_path).create("orders", 1)
    made = topics(tmp_path)
    assert made.adopt([(b"orders", 3, 1), (b"deleted", 0, 1)]) == []
    assert made.names() == ["orders"]
    assert made.write_queues(b"orders") == 1


class TestATornFile:
    @pytest.fixture
    def before(self, tmp_path):
        made = topics(tmp_path, queues_max=100)
        made.create("orders", 2)
        made.create("gone", 2)
        made.delete("gone", 1000, {0: 5, 1: 0})
        return made

    @staticmethod
    def tear(tmp_path):
        path = tmp_path / "topics.json"
        path.write_bytes(path.read_bytes()[:40])

    def test_brings_no_deleted_topic_back_and_loses_no_floor(self, before, tmp_path):
        self.tear(tmp_path)
        made = topics(tmp_path, queues_max=100)
        assert made.adopt([(b"orders", 0, 3), (b"gone", 0, 5), (b"gone", 1, 0)]) == []
        assert made.names() == ["orders"]
        assert made.floors() == before.floors() == {(b"gone", 0): 5, (b"gone", 1): 0}

    def test_takes_a_topic_that_was_made_last_from_its_queues(self, before, tmp_path):
        before.create("new", 1)
        self.tear(tmp_path)
        made = topics(tmp_path, queues_max=100)
        assert made.names() == ["orders"]
        assert made.adopt([(b"new", 0, 1)]) == ["new"]
        assert ConfigFile(tmp_path / "topics.json").load() == made.content()()

    def test_takes_a_deleted_topic_that_was_made_again_from_what_was_put_to_it_since(self, before, tmp_path):
        before.create("gone", 2)
        self.tear(tmp_path)
        made = topics(tmp_path, queues_max=100)
        assert made.adopt([(b"gone", 0, 6), (b"gone", 1, 0)]) == ["gone"]
        assert made.floors() == before.floors()

    def test_is_told_and_read_alike_by_all(self, before, tmp_path):
        before.create("new", 1)
        reader = TopicsFile(tmp_path / "topics.json")
        self.tear(tmp_path)
        made = Topics(
            TopicsConfig(tmp_path / "topics.json"), StillClock(), auto_create=True, queue_nums_default=8, queues_max=9
        )
        [sentence] = made.load()
        assert str(tmp_path / "topics.json.bak") in sentence
        reader.refresh()
        assert sorted(reader.table.topics) == made.names() == ["orders"]
        assert reader.table.floors() == made.floors()

    def test_of_which_nothing_is_left_is_refused(self, before, tmp_path):
        self.tear(tmp_path)
        (tmp_path / "topics.json.bak").unlink()
        with pytest.raises(MalformedFile, match=r"topics\.json"):
            topics(tmp_path)

    def test_a_change_that_deletes_nothing_keeps_the_generation_before(self, before, tmp_path):
        before.create("new", 1)
        before.create("newer", 1)
        names = [
            sorted((ConfigFile(tmp_path / name).load() or {})["topicConfigTable"])
            for name in ("topics.json", "topics.json.bak")
        ]
        assert names == [["new", "newer", "orders"], ["new", "orders"]]


LONG = "%RETRY%" + "g" * 121


def test_a_long_name_is_refused_where_records_of_version_2_are_not_written(tmp_path):
    assert topics(tmp_path).create(LONG, 1).write_queue_nums == 1
    kept = topics(tmp_path, long_names=False)
    assert kept.write_queues(LONG.encode()) == 0
    for ask in (kept.route, lambda name: kept.create(name, 1)):
        with pytest.raises(IllegalTopic, match="auto_message_version_on_topic_len"):
            ask(LONG + "h")
    assert kept.create(LONG[:-1], 1).write_queue_nums == 1


@pytest.mark.parametrize("name", [*sorted(SYSTEM_TOPICS), "RMQ_SYS_TRACE_TOPIC", "rmq_sys_wheel_timer"])
def test_a_topic_of_the_broker_is_nobodys_to_make_or_write(tmp_path, name):
    table = TopicTable(topics={name: TopicConfig(topic_name=name)})
    for made in (topics(tmp_path / "without"), topics(tmp_path)):
        with pytest.raises(IllegalTopic, match="for itself"):
            made.create(name, 1)
    ConfigFile(tmp_path / "topics.json").save(topics_content(table))
    assert topics(tmp_path).write_queues(name.encode()) == 0


@pytest.mark.parametrize("name", ["%RETRY%group", "%DLQ%group", "BenchmarkTest", "RMQ_SYSTEM", "DefaultCluster"])
def test_a_topic_that_clients_write_is_theirs_to_make(tmp_path, name):
    made = topics(tmp_path)
    made.create(name, 3)
    assert made.write_queues(name.encode()) == 3


class TestMadeByThemselves:
    @pytest.mark.parametrize(("asked", "made"), [(0, 8), (3, 3), (20, 8)])
    def test_as_many_queues_as_asked_for_and_at_most_the_templates(self, tmp_path, asked, made):
        assert topics(tmp_path).route("orders", asked).write_queue_nums == made

    def test_a_template_in_the_file_gives_its_queues_and_its_permission(self, tmp_path):
        template = TopicConfig(topic_name=TEMPLATE_TOPIC, write_queue_nums=2, read_queue_nums=2, perm=5)
        ConfigFile(tmp_path / "topics.json").save(topics_content(TopicTable(topics={TEMPLATE_TOPIC: template})))
        made = topics(tmp_path).route("orders")
        assert (made.write_queue_nums, made.perm) == (2, 4)

    def test_any_topic_may_be_the_template_that_lets_others_inherit(self, tmp_path):
        made = topics(tmp_path, auto_create=False)
        made.create("parent", 3, TopicChange(perm=7))
        assert made.route("child", 8, "parent").write_queue_nums == 3
        assert made.route("grandchild-of-none", 1, "parent").perm == 6
        for template in ("child", "unknown", TEMPLATE_TOPIC):
            with pytest.raises(UnknownTopic, match="other"):
                made.route("other", 1, template)

    @pytest.mark.parametrize("name", ["%RETRY%group", "%DLQ%group"])
    def test_topics_of_a_group_have_one_queue_whatever_the_settings_say(self, tmp_path, name):
        assert topics(tmp_path, auto_create=False).route(name, 8).write_queue_nums == 1


class TestAltering:
    @pytest.fixture
    def made(self, tmp_path):
        found = topics(tmp_path, queues_max=20)
        found.create("orders", 4)
        return found

    def test_what_is_not_named_stays_and_everything_is_kept(self, made, tmp_path):
        made.alter("orders", TopicChange(perm=4, order=True))
        kept = topics(tmp_path).get("orders")
        assert (kept.read_queue_nums, kept.write_queue_nums, kept.perm, kept.order) == (4, 4, 4, True)
        assert made.write_queues(b"orders") == 0

    def test_a_change_to_the_same_is_not_written(self, made, tmp_path):
        before = (tmp_path / "topics.json").read_bytes()
        made.alter("orders", TopicChange(perm=6))
        assert (tmp_path / "topics.json").read_bytes() == before

    def test_read_queues_become_fewer_after_the_write_queues(self, made):
        with pytest.raises(TopicChangeRefused, match="lower the write queues"):
            made.alter("orders", TopicChange(read_queues=2, write_queues=2))
        made.alter("orders", TopicChange(write_queues=2))
        assert made.write_queues(b"orders") == 2
        assert made.alter("orders", TopicChange(read_queues=2)).read_queue_nums == 2

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            (TopicChange(write_queues=5), "raise the read queues too"),
            (TopicChange(read_queues=0, write_queues=0), "lower the write queues"),
            (TopicChange(write_queues=0), "1 to 16384"),
            (TopicChange(read_queues=16385), "1 to 16384"),
            (TopicChange(perm=8), "sum of 4 read"),
        ],
    )
    def test_what_makes_no_sense_is_refused_and_changes_nothing(self, made, change, sentence):
        before = made.get("orders")
        with pytest.raises(TopicChangeRefused, match=sentence):
            made.alter("orders", change)
        assert made.get("orders") == before

    def test_more_queues_than_the_node_holds_are_refused(self, made):
        with pytest.raises(TooManyQueues, match="20"):
            made.alter("orders", TopicChange(read_queues=21))

    def test_unknown_topics_and_the_brokers_own_are_refused(self, made):
        with pytest.raises(UnknownTopic):
            made.alter("unknown", TopicChange(perm=6))
        for refused in (lambda: made.alter("TBW102", TopicChange(perm=6)), lambda: made.delete("RMQ_SYS_X", 1, {})):
            with pytest.raises(TopicProtected):
                refused()


class TestDeleting:
    def test_a_deleted_topic_is_unknown_and_its_floors_are_kept(self, tmp_path):
        made = topics(tmp_path)
        made.create("orders", 4)
        made.delete("orders", 1000, {0: 7, 3: 2})
        for found in (made, topics(tmp_path)):
            assert found.get("orders") is None
            assert found.write_queues(b"orders") == -1
            assert found.floors() == {(b"orders", 0): 7, (b"orders", 3): 2}

    def test_a_second_deletion_never_lowers_a_floor(self, tmp_path):
        made = topics(tmp_path)
        for end, floors in ((1000, {0: 7, 3: 2}), (2000, {0: 9})):
            made.create("orders", 4)
            made.delete("orders", end, floors)
        assert made.floors() == {(b"orders", 0): 9, (b"orders", 3): 2}

    def test_one_that_never_held_a_message_is_known_as_deleted_while_the_log_may_hold_delayed_ones(self, tmp_path):
        made = topics(tmp_path)
        made.create("orders", 4)
        made.delete("orders", 1000, {})
        assert read_topics(ConfigFile(tmp_path / "topics.json").load(), "").deleted == {
            "orders": DeletedTopic(log_offset=1000)
        }
        assert made.floors() == {}
        made.purge_deleted(1000, set())
        assert "towlineDeletedTopics" not in (tmp_path / "topics.json").read_text()

    def test_it_is_forgotten_when_neither_log_nor_queues_hold_anything(self, tmp_path):
        made = topics(tmp_path, queues_max=40)
        for name in ("gone", "held", "late", "again"):
            made.create(name, 2)
            made.delete(name, 2000 if name == "late" else 1000, {0: 1})
        made.create("again", 2)
        made.purge_deleted(1500, {b"held"})
        assert {topic for topic, _ in topics(tmp_path).floors()} == {b"held", b"late", b"again"}

    def test_its_queues_count_until_it_is_forgotten(self, tmp_path):
        made = topics(tmp_path, queues_max=10)
        made.create("orders", 6)
        made.delete("orders", 1000, dict.fromkeys(range(6), 1))
        with pytest.raises(TooManyQueues):
            made.create("others", 5)
        made.purge_deleted(1000, ())
        made.create("others", 5)


class TestUntilItIsWritten:
    @pytest.fixture
    def made(self, tmp_path):
        topics(tmp_path).create("orders", 4)
        return topics(tmp_path, Topics)

    def test_a_new_topic_is_there_for_the_next_change_alone(self, made):
        made.create("refunds", 2)
        assert (made.get("refunds"), made.committed("refunds"), made.write_queues(b"refunds")) == (None, None, -1)
        with pytest.raises(TopicExists):
            made.create("refunds", 2)
        assert made.changed
        made.commit()
        assert (made.get("refunds").write_queue_nums, made.write_queues(b"refunds"), made.changed) == (2, 2, False)

    def test_an_altered_one_is_what_it_was(self, made):
        made.alter("orders", TopicChange(perm=4))
        assert (made.get("orders").perm, made.write_queues(b"orders")) == (6, 4)
        assert made.committed("orders") is None
        made.commit()
        assert (made.committed("orders").perm, made.write_queues(b"orders")) == (4, 0)

    def test_one_that_is_to_go_takes_no_more_puts_and_may_come_back(self, made):
        seen = made.client_queues
        made.delete("orders", 1000, {0: 7})
        assert (made.get("orders"), made.write_queues(b"orders"), made.floors()) == (None, -1, {})
        assert made.client_queues is not seen
        made.rollback()
        assert (made.committed("orders").write_queue_nums, made.write_queues(b"orders"), made.changed) == (4, 4, False)
        made.create("refunds", 1)
        made.delete("orders", 1000, {0: 9})
        made.create("orders", 2)
        assert made.write_queues(b"orders") == -1
        made.commit()
        assert (made.write_queues(b"orders"), made.floors()) == (2, {(b"orders", 0): 9})

    def test_a_route_that_would_be_refused_says_so_without_a_change(self, made):
        made.check_route("unknown")
        made.create("closed", 1)
        for name, template in (("unknown", "closed"), ("unknown", "nothing")):
            with pytest.raises(UnknownTopic):
                made.check_route(name, 1, template)
        made.check_route("closed", 1, "nothing")  # it is being made


class TestRetention:
    """How long, and how many bytes of, a topic's messages are read."""

    def test_is_kept_by_a_restart_and_by_other_changes(self, tmp_path):
        made = topics(tmp_path)
        made.create("orders", 2, TopicChange(retention_ms=60_000, retention_bytes=1 << 20))
        made.alter("orders", TopicChange(perm=4))
        kept = topics(tmp_path).get("orders")
        assert (kept.retention_ms, kept.retention_bytes, kept.perm) == (60_000, 1 << 20, 4)

    def test_each_is_changed_and_taken_away_by_itself(self, tmp_path):
        made = topics(tmp_path)
        made.create("orders", 2, TopicChange(retention_ms=60_000, retention_bytes=1 << 20))
        assert made.alter("orders", TopicChange(retention_ms=1_000)).attributes == {
            RETENTION_MS: "1000",
            RETENTION_BYTES: str(1 << 20),
        }
        assert made.alter("orders", TopicChange(retention_ms=NO_RETENTION)).attributes == {
            RETENTION_BYTES: str(1 << 20)
        }
        assert made.alter("orders", TopicChange(retention_bytes=NO_RETENTION)).attributes == {}

    def test_leaves_attributes_of_others_alone(self, tmp_path):
        others = {"message.type": "NORMAL", "a": "-1"}
        table = TopicTable(topics={"orders": TopicConfig(topic_name="orders", attributes=others)})
        ConfigFile(tmp_path / "topics.json").save(topics_content(table))
        made = topics(tmp_path)
        assert made.alter("orders", TopicChange(retention_ms=1_000)).attributes == others | {RETENTION_MS: "1000"}
        assert made.alter("orders", TopicChange(retention_ms=NO_RETENTION)).attributes == others

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (TopicChange(retention_ms=RETENTION_MS_MIN - 1), "kept for 999 ms; 1000 to 3153600000000 are allowed"),
            (TopicChange(retention_ms=RETENTION_MS_MAX + 1), "-1 for none"),
            (TopicChange(retention_ms=0), "kept for 0 ms"),
            (TopicChange(retention_ms=-2), "kept for -2 ms"),
            (TopicChange(retention_bytes=RETENTION_BYTES_MIN - 1), "65535 bytes in each queue; 65536 to"),
            (TopicChange(retention_bytes=RETENTION_BYTES_MAX + 1), "bytes in each queue"),
        ],
    )
    def test_is_refused_where_no_topic_may_have_it_and_nothing_changes(self, tmp_path, change, said):
        made = topics(tmp_path)
        before = made.create("orders", 2)
        with pytest.raises(TopicChangeRefused, match=said):
            made.alter("orders", change)
        with pytest.raises(TopicChangeRefused, match=said):
            made.create("more", 2, change)
        assert (made.get("orders"), made.get("more")) == (before, None)

    def test_is_not_for_the_brokers_own_topics(self, tmp_path):
        with pytest.raises(TopicProtected):
            topics(tmp_path).alter("SCHEDULE_TOPIC_XXXX", TopicChange(retention_ms=1_000))

    def test_is_not_inherited(self, tmp_path):
        made = topics(tmp_path)
        made.create("model", 2, TopicChange(perm=7, retention_ms=60_000))
        assert made.route("copy", template="model").retention_ms is None
