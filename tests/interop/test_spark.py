"""What a real store wrote, read by the source of Spark: every message as the real store itself shows it."""

import ipaddress
from hashlib import sha256
from typing import Any

import pytest

from tests.spark.reads import planned, read_plan, readable
from tests.spark.sessions import spark
from towline.spark.errors import NoSafeEnd
from towline.spark.stores import StoreKind, StoreView

from .checks import mixed_specs, mixture
from .jvm import RealStore
from .releases import NEW
from .towlines import REAL_SETTINGS, SEGMENT

__all__ = ["spark"]

SINGLES = 700
BATCHES = 40


@pytest.fixture
def written(release, real):
    """A closed store, and what it shows of its messages."""
    _, specs = mixed_specs(mixture(6, release), SINGLES, BATCHES)
    real.open()
    real.put(specs)
    found = real.read()
    real.close()
    return real.root, found


@pytest.mark.parametrize("mode", ["scan", "queue"])
def test_every_message_of_a_closed_store(written, mode):
    root, found = written
    view = StoreView.open(root)
    assert (view.kind, view.segment_size) == (StoreKind.ROCKETMQ, SEGMENT)
    assert in_order(map(seen, read_plan(planned(root, readMode=mode, checkCrcs="true")))) == expected(found)


def test_every_message_of_a_halted_store(release, start_jvm, tmp_path):
    """Runtime.halt behind the last acknowledgement: what its queues do not have yet is in its log."""
    jvm = start_jvm(release)
    dying = RealStore(jvm, tmp_path / "store", **REAL_SETTINGS)
    _, specs = mixed_specs(mixture(7, release), SINGLES, BATCHES)
    dying.open()
    dying.put(specs)
    found = dying.read()
    jvm.tell(op="halt")
    jvm.await_end()
    assert (dying.root / "abort").exists()
    assert in_order(map(seen, read_plan(planned(dying.root)))) == expected(found)


def test_a_store_that_a_broker_has_open_is_read_as_far_as_it_says_or_not_at_all(release, real, written):
    """An old one says nothing. A newer one writes where its last record began when it was opened, for the next time."""
    root, found = written
    real.open()
    with pytest.raises(NoSafeEnd, match="is being written by process"):
        StoreView.open(root)
    real.close()
    real.open()
    if release == NEW:
        assert StoreView.open(root).safe_end == in_order(found)[-1]["physical_offset"]
        assert in_order(map(seen, read_plan(planned(root)))) == expected(found)[:-1]
    else:
        with pytest.raises(NoSafeEnd):
            StoreView.open(root)
    real.close()


@pytest.mark.parametrize("release", [NEW], ids=str)
def test_through_a_session(spark, written):
    root, found = written
    frame = spark.read.format("towline").option("minPartitions", "3").load(str(root))
    rows = readable([row.asDict() for row in frame.collect()])
    assert in_order(map(seen, rows)) == expected(found)
    counts = {row["topic"]: row["count"] for row in frame.groupBy("topic").count().collect()}
    topics = [each["topic"] for each in found]
    assert counts == {topic: topics.count(topic) for topic in topics}


def seen(row: dict[str, Any]) -> dict[str, Any]:
    """A row in the form of the real store's own."""
    return {
        "topic": row["topic"],
        "queue_id": row["queueId"],
        "queue_offset": row["queueOffset"],
        "physical_offset": row["commitLogOffset"],
        "size": row["size"],
        "body": sha256(row["body"]).hexdigest(),
        "body_size": len(row["body"]),
        "body_crc": row["bodyCRC"],
        "properties": dict(sorted(row["properties"].items())),
        "flag": row["flag"],
        "sys_flag": row["sysFlag"],
        "born_timestamp": round(row["bornTimestamp"].timestamp() * 1000),
        "store_timestamp": round(row["storeTimestamp"].timestamp() * 1000),
        "born_host": host(row["bornHost"]),
        "store_host": host(row["storeHost"]),
        "reconsume_times": row["reconsumeTimes"],
        "tags": row["tags"],
        "keys": row["keys"],
        "unique": row["uniqKey"],
    }


def host(text: str) -> str:
    address, _, port = text.rpartition(":")
    return f"{ipaddress.ip_address(address.strip('[]')).packed.hex()}:{port}"


def expected(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a source can show of it, and the three properties that have columns of their own."""
    hidden = ("record", "message_id")
    named = {"tags": "TAGS", "keys": "KEYS", "unique": "UNIQ_KEY"}
    return in_order(
        {name: value for name, value in each.items() if name not in hidden}
        | {column: each["properties"].get(name) for column, name in named.items()}
        for each in found
    )


def in_order(rows: Any) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["physical_offset"])
