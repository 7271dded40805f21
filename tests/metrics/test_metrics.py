"""What a master and its slave export: every declared metric, with the figures of the node."""

import os
import signal
from collections.abc import Iterator

import pytest

from tests.metrics.scraping import WAIT_S, ask, families, metered, port_of, value, values
from tests.processes.nodes import Pair, TestNode, check_nothing_is_left, ending, free_port
from tests.processes.stopping import stopped
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import CannotListen
from towline.limits import KIB
from towline.metrics.declared import DECLARED
from towline.runtime.positions import Position
from towline.runtime.stage_times import APPENDS_TIMED

TOPIC, GROUP = "orders", "billing"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    more = {"listen_port": free_port(), "metrics_labels_max": 3, "flush_consumer_offset_interval": 50}
    made = Pair(tmp_path_factory.mktemp("metrics"), metrics_port=free_port(), broker_role="ASYNC_MASTER", **more)
    made.slave.flags += ["--set", f"metrics_port={free_port()}"]
    with ending(*made.nodes):
        made.start()
        yield made
        assert made.stop() == (True, True)
        check_nothing_is_left(*made.nodes)


def put(node: TestNode, topic: str, count: int, queue_id: int = 0) -> None:
    """Messages of 1 KiB, dispatched."""
    with Producer(node.endpoint) as producer:
        results = producer.send_batch(Message(topic, bytes(KIB), queue_id=queue_id) for _ in range(count))
    assert all(result.acknowledged for result in results)
    await_(lambda: node.at(Position.DISPATCHED) == node.at(Position.APPENDED), WAIT_S, "all is dispatched")


def test_a_node_exports_every_declared_metric_and_no_other(pair: Pair) -> None:
    for node in pair.nodes:
        assert {name: each.type for name, each in families(node).items()} == {
            name: each.kind for name, each in DECLARED.items()
        }


def test_samples_have_the_declared_labels(pair: Pair) -> None:
    put(pair.master, TOPIC, 1)
    for node in pair.nodes:
        for name, family in families(node).items():
            for sample in family.samples:
                assert set(sample.labels) - {"le"} == set(DECLARED[name].labels), sample


def test_prometheus_own_format_has_the_same_metrics(pair: Pair) -> None:
    status, text = ask(pair.master, "/metrics", "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.1")
    assert status == 200
    assert text.endswith("# EOF\n")
    assert "# TYPE towline_put_latency_seconds histogram" in text


def test_what_came_in_and_went_out_is_counted_by_topic(pair: Pair) -> None:
    before = values(pair.master, "rocketmq_messages_in_total", "topic").get("counted", 0)
    put(pair.master, "counted", 7)
    with Consumer(f"ipc://{pair.master.runtime / 'serve.sock'}", "counted", start="first") as consumer:
        await_(lambda: consumer.poll(1_000), WAIT_S, "messages")
    named = {"topic": "counted", "cluster": "DefaultCluster", "node_type": "broker", "node_id": "towline"}
    assert before == 0
    assert value(pair.master, "rocketmq_messages_in_total", **named) == 7
    assert 7 * KIB < (value(pair.master, "rocketmq_throughput_in_total", **named) or 0) < 9 * KIB
    assert value(pair.master, "rocketmq_messages_out_total", **named) == 7
    pair.await_caught_up()
    assert value(pair.slave, "rocketmq_messages_in_total", **named) == 7


def test_positions_are_those_of_the_node(pair: Pair) -> None:
    put(pair.master, TOPIC, 3)
    end = pair.await_caught_up()
    for node in pair.nodes:
        told = values(node, "towline_position_bytes", "position")
        for name in ("appended", "flushed", "committed", "dispatched", "indexed", "visible"):
            assert told[name] == end, name
        assert value(node, "rocketmq_storage_flush_behind_bytes") == 0
        assert value(node, "rocketmq_storage_dispatch_behind_bytes") == 0
        assert value(node, "towline_store_bytes", part="commitlog") == end
    assert value(pair.master, "towline_position_bytes", position="replicated") == end
    assert value(pair.slave, "towline_position_bytes", position="confirmed") == end


def test_each_stage_counts_its_batches(pair: Pair) -> None:
    def counted(node: TestNode) -> dict[str, float]:
        samples = families(node)["towline_stage_seconds"].samples
        return {each.labels["stage"]: each.value for each in samples if each.name.endswith("_count")}

    assert set(counted(pair.master)) == {"append", "flush", "replicate", "dispatch", "serve"}
    assert set(counted(pair.slave)) == {"receive", "flush", "dispatch", "serve"}
    before = counted(pair.master), counted(pair.slave)
    with Producer(pair.master.endpoint, linger_ms=0) as producer:
        for _ in range(2 * APPENDS_TIMED):
            producer.send(Message(TOPIC, b"x"))
    with Consumer(f"ipc://{pair.master.runtime / 'serve.sock'}", TOPIC) as consumer:
        await_(lambda: consumer.poll(1), WAIT_S, "a message comes")

    def more(node: TestNode, known: dict[str, float], stages: set[str]) -> bool:
        return all(counted(node)[stage] > known[stage] for stage in stages)

    of_master = {"append", "flush", "replicate", "dispatch", "serve"}
    await_(lambda: more(pair.master, before[0], of_master), WAIT_S, "every stage of the master has done something")
    await_(lambda: more(pair.slave, before[1], {"receive", "flush", "dispatch"}), WAIT_S, "and of the slave")


def test_each_request_is_in_one_bucket_of_the_put_times(pair: Pair) -> None:
    before = value(pair.master, "towline_put_latency_seconds_count") or 0
    with Producer(pair.master.endpoint, linger_ms=0) as producer:
        for _ in range(5):
            producer.send(Message(TOPIC, b"x"))
    assert value(pair.master, "towline_put_latency_seconds_count") == before + 5
    buckets = [each for each in families(pair.master)["towline_put_latency_seconds"].samples if "le" in each.labels]
    counts = [each.value for each in buckets]
    assert counts == sorted(counts)
    assert (buckets[-1].labels["le"], counts[-1]) == ("+Inf", before + 5)
    assert families(pair.slave)["towline_put_latency_seconds"].samples == []


def test_roles_links_and_slaves_are_told(pair: Pair) -> None:
    pair.await_caught_up()
    assert [value(node, "towline_is_master") for node in pair.nodes] == [1, 0]
    assert value(pair.slave, "towline_follows_master") == 1
    assert value(pair.slave, "towline_behind_master_bytes") == 0
    assert values(pair.master, "towline_slave_connected", "node") == {"1": 1}
    await_(lambda: value(pair.master, "towline_slave_behind_bytes", node="1") == 0, WAIT_S, "the slave is level")
    assert value(pair.master, "towline_epoch") == value(pair.slave, "towline_epoch") == pair.master.at(Position.EPOCH)


def test_every_process_tells_its_time_and_its_memory(pair: Pair) -> None:
    expected = {"supervise" if label == "supervisor" else label for label in pair.master.pids()}
    assert values(pair.master, "towline_process_cpu_seconds_total", "process").keys() == expected

    def measured() -> dict[str, float]:
        found = values(pair.master, "towline_process_pss_bytes", "process")
        return found if found.keys() == expected else {}

    assert all(size > 1e6 for size in await_(measured, WAIT_S, "memory is measured").values())


def test_disk_and_sizes_are_told(pair: Pair) -> None:
    assert (value(pair.master, "towline_disk_available_bytes") or 0) > 0
    assert 0 < (value(pair.master, "towline_disk_used_ratio") or 0) < 1
    assert (value(pair.master, "towline_disk_full_seconds") or 0) > 0
    entries = 20 * (value(pair.master, "towline_process_messages_total", process="reput") or 0)
    assert value(pair.master, "towline_store_bytes", part="consumequeue") == entries


@pytest.fixture(scope="module")
def reader(pair: Pair) -> Pair:
    """A group has read the first three of ten messages in one queue, and all four in another."""
    put(pair.master, "lag", 10)
    put(pair.master, "lag", 4, queue_id=1)
    with AdminClient(f"ipc://{pair.master.runtime / 'serve.sock'}") as admin:
        admin.configure_group(GROUP, retryMaxTimes=3)
        admin.reset_offsets(GROUP, "lag", "last")
        admin.set_offset(GROUP, "lag", 0, 3)
    return pair


class TestOfAGroup:
    def test_unread_messages_are_counted(self, reader: Pair) -> None:
        def told() -> bool:
            return value(reader.master, "rocketmq_consumer_lag_messages", consumer_group=GROUP, topic="lag") == 7

        await_(told, WAIT_S, "7 messages are unread")
        assert value(reader.master, "towline_group_lag_messages", consumer_group=GROUP) == 7

    def test_the_age_of_the_oldest_grows_until_it_is_read(self, reader: Pair) -> None:
        def age() -> float:
            return value(reader.master, "towline_group_lag_seconds", consumer_group=GROUP) or 0

        first = await_(age, WAIT_S, "it is known how old it is")
        behind = value(reader.master, "towline_group_behind_bytes", consumer_group=GROUP) or 0
        assert 7 * KIB < behind < reader.master.at(Position.APPENDED)
        assert value(reader.master, "towline_group_reads_cold", consumer_group=GROUP) == 0
        await_(lambda: age() > first + 0.1, WAIT_S, "it grows")
        labels = {"consumer_group": GROUP, "topic": "lag"}
        assert (value(reader.master, "rocketmq_consumer_lag_latency", **labels) or 0) >= 1000 * first
        with AdminClient(f"ipc://{reader.master.runtime / 'serve.sock'}") as admin:
            assert admin.set_offset(GROUP, "lag", 0, 10) == 10
        await_(lambda: age() == 0, WAIT_S, "nothing is unread")
        assert value(reader.master, "rocketmq_consumer_lag_messages", **labels) == 0

    def test_a_slave_leaves_it_to_its_master(self, reader: Pair) -> None:
        assert families(reader.slave)["towline_group_lag_messages"].samples == []


def test_topics_beyond_the_limit_are_summed(pair: Pair) -> None:
    """The limit is 3 here: the first topics keep their series."""
    before = values(pair.master, "rocketmq_messages_in_total", "topic")
    named = [topic for topic in before if topic != "(others)"]
    for number in range(4):
        put(pair.master, f"more{number}", 2)
    after = values(pair.master, "rocketmq_messages_in_total", "topic")
    assert len(after) == 4
    assert set(named) < set(after)
    assert sum(after.values()) == sum(before.values()) + 8
    left_out = values(pair.master, "towline_left_out", "of")["topics"]
    assert left_out >= 4 - (3 - len(named))


def test_a_scrape_asks_no_process(pair: Pair) -> None:
    """All others stand still, and it is answered with what they have done."""
    others = [pid for label, pid in pair.master.pids().items() if label != "metrics"]
    with stopped(*others):
        assert value(pair.master, "towline_position_bytes", position="appended") == pair.master.at(Position.APPENDED)


def test_its_process_is_started_again_after_a_kill_and_nobody_else_is(pair: Pair) -> None:
    before = pair.master.pids()
    os.kill(before["metrics"], signal.SIGKILL)
    pair.master.await_restarted("metrics", before)
    await_(lambda: ask(pair.master, "/ready")[0] == 200, WAIT_S, "it answers again")
    after = pair.master.pids()
    assert {label for label in before if before[label] != after[label]} == {"metrics"}
    assert value(pair.master, "towline_position_bytes", position="appended") == pair.master.at(Position.APPENDED)


def test_what_is_not_there_is_not_found(pair: Pair) -> None:
    assert ask(pair.master, "/") == (404, "/metrics, /live, /ready\n")


def test_a_port_that_is_taken_refuses_the_start_by_its_setting(pair: Pair, tmp_path) -> None:
    node = TestNode("master", tmp_path, metrics_port=port_of(pair.master))
    with ending(node), pytest.raises(CannotListen, match="metrics_port"):
        node.start()


def test_without_the_setting_there_is_no_such_process(tmp_path) -> None:
    node = TestNode("master", tmp_path)
    with ending(node):
        node.start()
        assert "metrics" not in node.pids()
        assert "metrics" not in node.facts["endpoints"]
        assert node.stop()


def test_the_port_of_a_node_is_among_its_endpoints(tmp_path) -> None:
    node = metered("master", tmp_path)
    with ending(node):
        node.start()
        assert node.facts["endpoints"]["metrics"] == [f"http://127.0.0.1:{port_of(node)}"]
        assert node.stop()
        check_nothing_is_left(node)
