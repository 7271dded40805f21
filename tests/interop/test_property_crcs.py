"""Property CRCs (spec 2.7): either side insists on the other's, and a real store that was told nothing goes on."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.processes.waiting import await_
from towline.client.message import Message
from towline.format.record.property_crc import SIZE

from .brokers import BROKER, RealBroker
from .checks import check_read, mixed_specs, mixture
from .conftest import Started
from .jvm import RealStore
from .model import QUEUES, Sent
from .releases import BROKERS, NEW, NEWEST_BROKER, NEWEST_RELEASE
from .towlines import REAL_SETTINGS, TowlineStore

CRC = "__CRC32#"
APPEND = {"enabledAppendPropCRC": True, "forceVerifyPropCRC": True}
PLAIN = [("Plain", queue_id) for queue_id in range(QUEUES)]
DISPATCHED_S = 60.0


@pytest.fixture
def insisting(jvms: Started, tmp_path: Path) -> RealStore:
    return RealStore(jvms(NEW), tmp_path / "store", **REAL_SETTINGS, **APPEND)


@pytest.fixture
def sealing(tmp_path: Path) -> Iterator[TowlineStore]:
    store = TowlineStore(tmp_path / "store", enabled_append_prop_crc="true", force_verify_prop_crc="true")
    yield store
    store.end()


@pytest.fixture
def appending(tmp_path: Path) -> Iterator[TowlineStore]:
    """It appends property CRCs and takes records without one."""
    store = TowlineStore(tmp_path / "store", enabled_append_prop_crc="true")
    yield store
    store.end()


@pytest.fixture
def lent(appends: bool, tmp_path: Path) -> Iterator[TowlineStore]:
    """It may append property CRCs."""
    store = TowlineStore(tmp_path / "store", **({"enabled_append_prop_crc": "true"} if appends else {}))
    yield store
    store.end()


def hidden(found: list[dict]) -> list[dict]:
    """As Towline's reader shows them: without the property CRC."""
    return [
        {**message, "properties": {name: value for name, value in message["properties"].items() if name != CRC}}
        for message in found
    ]


def crcs(found: list[dict]) -> dict[str, list[str]]:
    """By unique key those of the messages with that key, in the order in which they were found."""
    by_key: dict[str, list[str]] = {}
    for message in found:
        if CRC in message["properties"]:
            by_key.setdefault(message["properties"].get("UNIQ_KEY", ""), []).append(message["properties"][CRC])
    return by_key


def read_all(broker: RealBroker, count: int) -> list[dict]:
    """That many messages: what is delivered late and what was acknowledged just now is dispatched a little later."""

    def whole() -> list[dict] | None:
        found = broker.read()
        return found if len(found) >= count else None

    return await_(whole, DISPATCHED_S, f"the broker shows {count} messages")


def keys(sent: list[Sent]) -> set[str]:
    return {message.key for message in sent}


def test_each_insists_on_what_the_other_appended(insisting, sealing):
    messages = mixture(7, NEW)
    sealing.start()
    sent = messages.take(400)
    sealing.send(sent)
    sealing.kill(seed=2)  # so that the real store walks the log with every check

    insisting.open()
    assert len(insisting.read()) == len(sent)
    put, specs = mixed_specs(messages, 100, 10)
    insisting.put(specs)
    found = insisting.read()
    assert crcs(found).keys() == keys(sent) | keys(put)
    insisting.close()
    (sealing.root / "abort").touch()  # so that Towline walks what the real store wrote

    with sealing.running():
        assert sealing.read() == hidden(found)
        sealing.send(more := messages.take(50))
        mine = sealing.read()
    assert len(mine) == len(found) + len(more)
    insisting.open()
    assert hidden(insisting.read()) == mine
    insisting.close()


@pytest.mark.parametrize("release", NEWEST_RELEASE, ids=str)
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_a_store_that_was_told_nothing_reads_and_continues_what_has_them(release, real, appending, killed):
    messages = mixture(8, release)
    appending.start()
    sent = messages.take(600)
    appending.send(sent)
    if killed:
        appending.kill(seed=3)
    else:
        appending.stop()

    real.configure(messageIndexSafe=killed)
    real.open()
    found = check_read(real, sent)
    assert crcs(found).keys() == keys(sent)
    put, specs = mixed_specs(messages, 200, 20)
    real.put(specs)
    found = real.read()
    assert crcs(found).keys() == keys(sent)
    real.close()
    if killed:
        (appending.root / "abort").touch()  # so that Towline walks what both wrote

    with appending.running():
        assert check_read(appending, [*sent, *put]) == hidden(found)
        more = messages.take(200)
        appending.send(more)
        mine = appending.read()

    real.open()
    found = check_read(real, [*sent, *put, *more])
    assert hidden(found) == mine
    assert crcs(found).keys() == keys(sent) | keys(more)
    real.close()


@pytest.mark.parametrize("release", NEWEST_BROKER, ids=str)
def test_what_a_broker_delivers_late_and_a_client_sends_on_with_an_old_one_is_not_taken_for_damaged(
    release, start_jvm, appending
):
    """Either has the CRC of another record. RocketMQ puts a property behind it, so it is not the record's own."""
    first, *others = [Sent("Plain", number % QUEUES, b"body", f"{number:032X}") for number in range(40)]
    appending.start("--without", "schedule")  # nobody but the broker delivers what is late
    appending.send([first, *others[:20]])
    late = appending.producer(None).send_async(Message("Plain", b"late", queue_id=0, delay_level=1))
    appending.producer(None).flush(60_000)
    assert late.result().status.name == "PUT_OK"
    appending.kill(seed=4)

    broker = RealBroker(start_jvm(release, BROKER), appending.root, PLAIN)
    broker.open()
    old = crcs(read_all(broker, 22))
    assert old.keys() == {first.key, *keys(others[:20]), late.unique_key}
    again = replace(first, queue_id=1, more={CRC: old[first.key][0]})
    broker.send([message.spec() for message in (again, *others[20:])])
    found = read_all(broker, 42)
    assert crcs(found) == {**old, first.key: old[first.key] * 2}
    broker.close()
    (appending.root / "abort").touch()  # so that Towline walks what both wrote

    with appending.running():
        assert [each for each in appending.read() if each["topic"] == "Plain"] == hidden(found)
        appending.send([Sent("Plain", 0, b"more", f"{100:032X}")])


@pytest.mark.parametrize(
    ("release", "config", "appends", "is_last"),
    [
        (BROKERS[0], {}, True, False),
        pytest.param(NEW, {}, True, True, marks=pytest.mark.slow),
        pytest.param(NEW, {}, False, True, marks=pytest.mark.slow),
        (NEW, {"enabledAppendPropCRC": True}, True, False),
    ],
    ids=["4.9", "5.5", "5.5, from another store", "5.5 that appends them"],
)
def test_a_batch_that_ends_with_an_old_one_does_not_end_the_log(release, config, is_last, start_jvm, lent):
    """A client of 5.5 that sends on what it received as a batch writes the old CRC last, and a broker that was told
    nothing stores a batch's properties as they come. 4.9 leaves out the separator behind them."""
    first, *others = [Sent("Plain", number % QUEUES, b"body", f"{number:032X}") for number in range(20)]
    with lent.running():
        lent.send([first])
        start = lent.await_dispatched()
    broker = RealBroker(start_jvm(release, BROKER), lent.root, PLAIN, **config)
    broker.open()
    [old] = crcs(read_all(broker, 1)).get(first.key, ["1234567890"])
    broker.send([{**first.spec(batch=(first,)), "batch": [{**first.content(), "properties": {CRC: old}}]}])
    broker.send([message.spec() for message in others])
    found = read_all(broker, 21)
    broker.close()
    log = (lent.root / "commitlog" / f"{0:020d}").read_bytes()
    batch = log[start : start + int.from_bytes(log[start : start + 4], "big")]
    assert (batch[-SIZE:] == f"{CRC}\x01{old}\x02".encode()) is is_last

    lent.start()
    assert lent.read() == hidden(found)
    lent.kill(seed=5)
    lent.start()  # walks it all once more, and appends behind it
    lent.send([Sent("Plain", 0, b"more", f"{100:032X}")])
    assert len(lent.read()) == len(found) + 1 == 22
    lent.stop()
    assert not [*lent.root.glob("diverged/*.log")]
