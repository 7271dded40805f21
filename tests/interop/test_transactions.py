"""A real broker goes on with the transactions of Towline, and Towline with what the broker made of them."""

import pytest

from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.errors import TransactionRefused
from towline.client.message import Message
from towline.client.transaction import State, TransactionProducer
from towline.format.wire.status import PutStatus
from towline.node.process.context import runtime_of

from .brokers import BROKER, RealBroker
from .releases import BROKERS, NEW

ASIDE = "TRANS_CHECK_MAX_TIME_TOPIC"
OURS = (
    *("--set", "transaction_time_out=300", "--set", "transaction_check_interval=200"),
    *("--set", "transaction_check_max=1000", "--set", "flush_consumer_offset_interval=100"),
)
OLD, _ = BROKERS
THEIRS = {"transactionTimeOut": 100, "transactionCheckInterval": 300, "transactionCheckMax": 1}
DEADLINE_S = 90.0


def two_of(found):
    return found if len(found) > 1 else None


@pytest.mark.parametrize(
    ("release", "crcs"),
    [
        pytest.param(OLD, "false", marks=pytest.mark.slow),
        (OLD, "true"),
        (NEW, "false"),
        pytest.param(NEW, "true", marks=pytest.mark.slow),
    ],
    ids=["4.9-plain", "4.9-property CRCs", "5.5-plain", "5.5-property CRCs"],
)
def test_a_broker_checks_what_is_open_and_nothing_that_has_ended(release, start_jvm, tmp_path, towline, crcs):
    ours = (*OURS, "--set", f"enabled_append_prop_crc={crcs}")
    schedule = f"ipc://{runtime_of(towline.root.resolve()).socket('schedule')}"

    def checks_of(transaction):
        with AdminClient(schedule) as admin:
            found = {row["transaction"]: row["checks"] for row in admin.open_transactions()}
        return found.get(str(transaction))

    with towline.running(*ours), TransactionProducer(towline.node.endpoint, "billing") as producer:
        kept = producer.send(Message("Bills", b"kept", queue_id=0), lambda _: State.COMMIT)
        dropped = producer.send(Message("Bills", b"dropped", queue_id=0), lambda _: State.ROLLBACK)
        assert (kept.ended, dropped.ended) == (PutStatus.PUT_OK, PutStatus.PUT_OK)
        left, _ = producer.begin(Message("Bills", b"left", queue_id=0))
        await_(lambda: checks_of(left), DEADLINE_S, "it was checked, so it stands twice")

    broker = RealBroker(start_jvm(release, BROKER), towline.root, [("Bills", 0), (ASIDE, 0)], **THEIRS)
    broker.open()
    found = await_(lambda: two_of(broker.read()), DEADLINE_S, "the broker gives it up")
    assert [(each["topic"], each["properties"]["UNIQ_KEY"]) for each in found] == [
        ("Bills", kept.transaction.unique_key),
        (ASIDE, left.unique_key),
    ]
    broker.close()
    (towline.root / "abort").touch()  # so that Towline walks what the broker wrote

    with towline.running(*ours), TransactionProducer(towline.node.endpoint, "billing") as producer:
        with AdminClient(schedule) as admin:
            await_(lambda: admin.transaction_status()["half_next"] > left.first, DEADLINE_S, "the queue is read")
            assert admin.transaction_status()["open"] == 0, "the broker has put it aside"
        with pytest.raises(TransactionRefused, match="ALREADY_COMMITTED"):
            producer.rollback(kept.transaction)
        with pytest.raises(TransactionRefused, match="ALREADY_ENDED"):
            producer.commit(left)
