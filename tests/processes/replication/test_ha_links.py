"""HA links with a liar at the other end: refused with the reason on both sides, counted, and the log is unharmed."""

import zlib

import pytest

from tests.log.stores import StoreMaker
from tests.processes.fake_ha import FakeMaster, FakeSlave
from tests.processes.groups import Group
from tests.processes.nodes import SEGMENT, TestNode, ended, ending, free_port
from tests.processes.waiting import await_
from tests.processes.wire import WireClient, records_of
from towline.errors import LinkRefused
from towline.format.files.epochs import number_of
from towline.format.wire.frames import HA_ACK, HA_DATA, HA_SET, Kind
from towline.log.state.epoch_file import EpochFile
from towline.log.state.in_sync_file import InSyncFile, InSyncRecord
from towline.node.peers.peer_client import ask_peers
from towline.node.peers.peer_server import PROMISE
from towline.node.process.context import open_node
from towline.node.report.status import read_status
from towline.node.roles.promise import Promise, load_promise
from towline.runtime.positions import Counter, Duty, Position

STORE = "ab" * 16
NUMBER, NEXT = 513, 770  # epochs of the fake master


def refused_by(node, duty):
    return node.positions.duty(duty).counter(Counter.REFUSED)


# --- a fake slave


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    node = TestNode("master", tmp_path_factory.mktemp("master"), ha_listen_port=0)
    ending = ended(node)
    next(ending)
    node.start()
    client = WireClient(node.endpoint)
    client.create_topic("orders", 4)
    client.put(records_of(b"orders", 400, size=500))
    client.close()
    yield node
    next(ending, None)


@pytest.fixture
def slaves(master):
    """Makes fake slaves, which are gone afterwards."""
    made = []

    def make(**facts):
        made.append(FakeSlave(master, **facts))
        return made[-1]

    yield make
    for slave in made:
        slave.close()
    await_(lambda: not any(line.connected for line in master.positions.slaves()) or heard(make), 60.0, "all have left")


def heard(make):
    """A master finds out that a link has gone when it says something on it, or somebody else asks for the place."""
    probe = make(instance=99)
    try:
        probe.greet()
    except LinkRefused:
        pass
    finally:
        probe.close()
    return False


def own_epochs(master):
    return [list(epoch) for epoch in EpochFile(master.store).load()]


def log_of(master):
    return (master.store.commitlog / f"{0:020d}").read_bytes()[: master.at(Position.APPENDED)]


@pytest.mark.parametrize(
    ("facts", "code", "said"),
    [
        pytest.param({"segment_size": 1 << 30}, "SEGMENT_SIZE", "1073741824 bytes and ours 4194304", id="segments"),
        pytest.param({"cluster": "other"}, "CLUSTER", "'other'", id="another cluster"),
        pytest.param({"store": "cd" * 16}, "STORE", "cdcd", id="another store"),
        pytest.param({"node": 0}, "NODE_TAKEN", "node 0", id="the master's own number"),
        pytest.param({"node": 63}, "FACTS", "node is 63", id="a number that no node has"),
        pytest.param({"promised": 1 << 40}, "EPOCH", "1099511627776", id="a promise to a later master"),
        pytest.param({"epochs": [[1 << 40, 0]], "end": 9, "empty": False}, "EPOCH", "is master", id="a later epoch"),
        pytest.param({"epochs": "no"}, "FACTS", "epochs are 'no'", id="epochs that are none"),
        pytest.param({"epochs": [[3, 5], [2, 9]]}, "FACTS", "does not follow", id="epochs that go back"),
        pytest.param({"epochs": [[3, 50]], "end": 9, "empty": False}, "FACTS", "behind the end", id="an epoch ahead"),
        pytest.param({"end": -1}, "FACTS", "end is -1", id="a negative end"),
        pytest.param({"end": True}, "FACTS", "end is True", id="an end that is no number"),
        pytest.param({"end": 1 << 40}, "OFFSET", "ours ends at", id="an empty log far ahead"),
        pytest.param(
            {"epochs": [[7, 0]], "end": 9, "empty": False},
            "DIVERGED",
            "of node 5 and of node 0",
            id="nothing in common",
        ),
    ],
)
def test_a_slave_that_does_not_fit_is_refused_and_both_sides_say_why(master, slaves, facts, code, said):
    before, refused = log_of(master), refused_by(master, Duty.SEND)
    with pytest.raises(LinkRefused, match=code) as caught:
        slaves(**({"name": f"liar-{zlib.crc32(said.encode())}"} | facts)).greet()
    assert (caught.value.code, said in caught.value.sentence) == (code, True), caught.value.sentence
    assert log_of(master) == before
    assert f"is refused ({code}): {caught.value.sentence}" in master.store.node_log.read_text()
    assert refused_by(master, Duty.SEND) == refused + 1


@pytest.mark.parametrize("role", ["peer", "follower"])
def test_whoever_asks_from_another_cluster_is_counted_too(master, slaves, role):
    refused = refused_by(master, Duty.SEND)
    with pytest.raises(LinkRefused, match="'other'"):
        slaves(role=role, cluster="other").greet()
    assert refused_by(master, Duty.SEND) == refused + 1
    assert f"{role} 'fake', node 5 is refused (CLUSTER)" in master.store.node_log.read_text()


def test_an_empty_peer_that_promised_another_deposes_the_master(tmp_path):
    """It holds no byte and no epoch; its promise is all that it says of others."""
    group = Group(tmp_path, 3, broker_role="ASYNC_MASTER", in_sync_replicas=1, min_in_sync_replicas=1)
    node = group.nodes[0]
    with ending(node):
        node.start("--alone")
        slave = FakeSlave(node, store="", node=1, promised=number_of(9, 2))
        with pytest.raises(LinkRefused, match="node 2 is master") as caught:
            slave.greet()
        slave.close()
        assert caught.value.code == "EPOCH"
        assert load_promise(node.store) == Promise(number_of(9, 2), 2)
        assert "send exited" not in node.store.node_log.read_text()


@pytest.mark.parametrize("cut", [0, 1, 10_000], ids=["level", "a byte behind", "behind"])
def test_a_slave_is_told_the_common_point_and_what_stands_before_it(master, slaves, cut):
    log = log_of(master)
    end = len(log) - cut
    welcome = slaves(epochs=own_epochs(master), end=end, empty=False).greet()
    size = welcome["tail_size"]
    assert (welcome["start"], welcome["end"], welcome["epochs"]) == (end, len(log), own_epochs(master))
    assert size > 1000
    assert welcome["tail_crc"] == zlib.crc32(log[end - size : end])


def test_a_slave_that_is_ahead_is_told_where_the_masters_log_ends(master, slaves):
    log = log_of(master)
    assert slaves(epochs=own_epochs(master), end=len(log) + 999, empty=False).greet()["start"] == len(log)


def test_a_step_back_from_the_only_epoch_leads_to_a_refusal_that_names_both(master, slaves):
    epochs = own_epochs(master)
    slave = slaves(epochs=epochs, end=len(log_of(master)), empty=False, before=epochs[0][0])
    with pytest.raises(LinkRefused, match="node 5 and of node 0") as caught:
        slave.greet()
    assert caught.value.code == "DIVERGED"


def test_an_empty_slave_gets_everything_or_the_last_segment_alone(master, slaves):
    slave = slaves()
    welcome = slave.greet()
    slave.acknowledge(welcome["epoch"], 0, 0)
    epoch, offset, data = slave.slice()
    assert (epoch, offset, data[:100]) == (welcome["epoch"], 0, log_of(master)[:100])
    assert slaves(node=6, from_last=True).greet()["start"] == 0  # it is the only one
    slave.acknowledge(welcome["epoch"], len(data), len(data))


def test_what_comes_while_a_frame_is_on_its_way_follows_in_one_frame(master, slaves):
    slave = slaves()
    epoch = slave.greet()["epoch"]
    slave.acknowledge(epoch, 0, 0)
    _, _, first = slave.slice()
    client = WireClient(master.endpoint)
    for _ in range(3):
        client.put(records_of(b"orders", 2, size=100))  # each is acknowledged before the next is sent
    client.close()
    slave.acknowledge(epoch, len(first), len(first))
    _, offset, following = slave.slice()
    assert (offset, offset + len(following)) == (len(first), len(log_of(master)))
    slave.acknowledge(epoch, offset + len(following), offset)


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        pytest.param(
            lambda end: HA_ACK.pack(Kind.HA_ACK, 9999, end, end, 0), "it follows epoch 9999", id="another epoch"
        ),
        pytest.param(
            lambda end: HA_ACK.pack(Kind.HA_ACK, -1, end + 1, 0, 0), "more than was sent", id="more than was sent"
        ),
        pytest.param(lambda end: HA_ACK.pack(Kind.HA_ACK, -1, end - 1, 0, 0), "it takes back", id="less than before"),
        pytest.param(
            lambda end: HA_ACK.pack(Kind.HA_ACK, -1, end, end + 1, 0),
            "more is on disk",
            id="more on disk than in memory",
        ),
        pytest.param(lambda end: HA_ACK.pack(Kind.HA_ACK, -1, end, 0, 0)[:-1], "a head of", id="cut short"),
        pytest.param(
            lambda end: HA_DATA.pack(Kind.HA_DATA, 0, -1, end, end), "no word of a slave", id="a word of a master"
        ),
        pytest.param(lambda end: b"", "kind", id="nothing"),
    ],
)
def test_a_lying_acknowledgement_costs_the_link_and_both_sides_say_why(master, slaves, lie, why):
    end, before, refused = len(log_of(master)), log_of(master), refused_by(master, Duty.SEND)
    replicated = master.at(Position.REPLICATED)
    slave = slaves(epochs=own_epochs(master), end=end, empty=False)
    epoch = slave.greet()["epoch"]
    slave.acknowledge(epoch, end, end - 10, limit=end)
    await_(lambda: any(line.connected for line in master.positions.slaves()), 60.0, "it is linked")
    words = lie(end)
    if len(words) == HA_ACK.size and words[0] == Kind.HA_ACK:
        kind, said, *rest = HA_ACK.unpack_from(words)
        words = HA_ACK.pack(kind, epoch if said == -1 else said, *rest)
    slave.link.send([words])
    said = slave.await_cut()
    assert why in said
    assert f"the link of a slave is cut: {said}" in master.store.node_log.read_text()
    await_(lambda: refused_by(master, Duty.SEND) > refused, 60.0, "it is counted")
    assert log_of(master) == before
    assert master.at(Position.REPLICATED) >= replicated
    assert not any(line.connected for line in master.positions.slaves())


def test_a_first_acknowledgement_elsewhere_than_agreed_costs_the_link(master, slaves):
    end = len(log_of(master))
    slave = slaves(epochs=own_epochs(master), end=end, empty=False)
    slave.acknowledge(slave.greet()["epoch"], end - 5, 0)
    assert "not in our log" in slave.await_cut()


def test_a_master_says_why_a_slave_left(master, slaves):
    end = len(log_of(master))
    slave = slaves(epochs=own_epochs(master), end=end, empty=False, name="leaver")
    slave.acknowledge(slave.greet()["epoch"], end, end)
    await_(lambda: any(line.connected for line in master.positions.slaves()), 60.0, "it is linked")
    slave.leave("a slice of 5 bytes does not follow")
    await_(lambda: not any(line.connected for line in master.positions.slaves()), 60.0, "it has left")
    assert "slave 'leaver' leaves: a slice of 5 bytes does not follow" in master.store.node_log.read_text()


def test_a_number_is_taken_while_its_slave_is_heard_and_goes_over_to_the_same_node_coming_again(master, slaves):
    end = len(log_of(master))
    facts = {"epochs": own_epochs(master), "end": end, "empty": False}
    slave = slaves(**facts, instance=7)
    slave.acknowledge(slave.greet()["epoch"], end, end)
    await_(lambda: any(line.connected for line in master.positions.slaves()), 60.0, "it is linked")
    with pytest.raises(LinkRefused, match="node 5 is linked") as caught:
        slaves(**facts, instance=8).greet()
    assert caught.value.code == "NODE_TAKEN"
    again = slaves(**facts, instance=7)
    epoch = again.greet()["epoch"]
    again.acknowledge(epoch, end, end)
    slave.acknowledge(epoch, end, end)
    slave.await_cut()


# --- a fake master


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A master's log: bytes, and starts of records."""
    maker = StoreMaker(tmp_path_factory.mktemp("source"))
    maker.fill(100)
    return maker.log_bytes()[: maker.end], [one.at for one in maker.records]


@pytest.fixture(scope="module")
def fake_and_slave(tmp_path_factory, source):
    """A slave that has the first 60 records, of which 20 are confirmed, and of an epoch that began at the 40th."""
    log, starts = source
    port = free_port()
    fake = FakeMaster(port, STORE)
    slave = TestNode("slave", tmp_path_factory.mktemp("slave"), ha_master_address=f"127.0.0.1:{port}")
    ending = ended(slave)
    next(ending)
    fake.facts = welcome(source, 0, end=0)
    slave.start()
    request, epoch, appended = fake.await_ack()
    assert (epoch, appended, fake.greetings[-1]["empty"]) == (NEXT, 0, True)
    fake.data(request.peer, NEXT, 0, log[: starts[60]], confirmed=starts[20])
    await_(lambda: slave.at(Position.DISPATCHED) == starts[20], 60.0, "it holds what it was sent")
    yield fake, slave
    fake.close()
    next(ending, None)


def welcome(source, start, **other):
    log, starts = source
    tail = log[max(start - 5000, 0) : start]
    facts = {
        "epoch": NEXT,
        "epochs": [[NUMBER, 0], [NEXT, starts[40]]],
        "start": start,
        "common": NEXT,
        "tail_size": len(tail),
        "tail_crc": zlib.crc32(tail),
        "end": len(log),
    }
    return facts | other


def linked(fake, slave, source):
    """A link on which all is well so far: whom to send to, and the end of the slave's log."""
    end = slave.at(Position.APPENDED)
    fake.facts = welcome(source, end)
    request, epoch, appended = fake.await_ack()
    assert (epoch, appended) == (NEXT, end)
    return request.peer, end


def held(slave):
    return (slave.store.commitlog / f"{0:020d}").read_bytes()


def test_epochs_are_taken_over_with_their_first_byte(fake_and_slave, source):
    fake, slave = fake_and_slave
    linked(fake, slave, source)
    fake.until(lambda: read_status(slave.store.root)["master"]["connected"], "status says that it follows")
    assert EpochFile(slave.store).load() == ((NUMBER, 0), (NEXT, source[1][40]))
    assert slave.at(Position.EPOCH) == NEXT


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(lambda end, data: [frame(end, data, epoch=NUMBER), data], id="an earlier epoch"),
        pytest.param(lambda end, data: [frame(end, data, epoch=NEXT + 1), data], id="a later epoch"),
        pytest.param(lambda end, data: [frame(end + 1, data), data], id="out of order: ahead"),
        pytest.param(lambda end, data: [frame(end - 1, data), data], id="out of order: back"),
        pytest.param(lambda end, data: [frame(0, data), data], id="replayed"),
        pytest.param(lambda end, data: [frame(end, data), data[:-1]], id="truncated"),
        pytest.param(lambda end, data: [frame(end, data), data + b"x"], id="longer than it says"),
        pytest.param(lambda end, data: [frame(end, data)], id="without its bytes"),
        pytest.param(lambda end, data: [frame(end, data), data, data], id="with more parts"),
        pytest.param(lambda end, data: [frame(end, data)[:-1], data], id="a head cut short"),
        pytest.param(lambda end, data: [HA_DATA.pack(Kind.HA_DATA, -5, NEXT, end, 0), b""], id="a negative size"),
        pytest.param(lambda end, data: [HA_ACK.pack(Kind.HA_ACK, NEXT, end, end, end)], id="a word of a slave"),
        pytest.param(lambda end, data: [b""], id="nothing"),
        pytest.param(lambda end, data: [frame(end, bytes(SEGMENT)), bytes(SEGMENT)], id="beyond its segment"),
    ],
)
def test_a_forged_frame_costs_the_link_and_leaves_the_log_as_it_was(fake_and_slave, source, lie):
    fake, slave = fake_and_slave
    peer, end = linked(fake, slave, source)
    before, refused, pid = held(slave), refused_by(slave, Duty.RECEIVE), slave.positions.duty(Duty.RECEIVE).pid
    fake.facts = welcome(source, end)
    fake.send(peer, lie(end, source[0][end : end + 500]))
    fake.await_greeting()  # it left, and comes again
    assert refused_by(slave, Duty.RECEIVE) == refused + 1
    said = fake.told.pop()
    assert f"the link to the master ends: {said}" in slave.store.node_log.read_text()
    assert (held(slave), slave.at(Position.APPENDED)) == (before, end)
    assert slave.positions.duty(Duty.RECEIVE).pid == pid


def frame(offset, data, epoch=NEXT):
    return HA_DATA.pack(Kind.HA_DATA, len(data), epoch, offset, 0)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        pytest.param({"start": None}, "start is None", id="no start"),
        pytest.param({"epochs": [[5, 5], [4, 9]]}, "does not follow", id="epochs that go back"),
        pytest.param({"epochs": [[NUMBER, 0], [NEXT + 9, 7]]}, "has bytes of 779", id="bytes of a later master"),
        pytest.param({"epoch": NUMBER}, "its epoch is 513, and we know 770", id="a master of an earlier epoch"),
        pytest.param({"store": ""}, "store id is ''", id="no store"),
        pytest.param({"store": "x" * 32}, "'xxxx", id="a store that is none"),
        pytest.param({"cluster": ""}, "names the cluster ''", id="no cluster"),
        pytest.param({"start": 1 << 40}, "wants to begin at 1099511627776", id="a start behind our end"),
        pytest.param({"tail_size": 1 << 40}, "wants to begin at", id="a tail longer than the log"),
    ],
)
def test_a_welcome_that_does_not_fit_is_refused_by_name(fake_and_slave, source, facts, said):
    fake, slave = fake_and_slave
    before = held(slave)
    fake.facts = welcome(source, slave.at(Position.APPENDED)) | facts
    drop(fake)
    fake.until(lambda: said in slave.store.node_log.read_text(), f"the slave says {said!r}")
    assert (held(slave), slave.store.truncate.exists()) == (before, False)


def drop(fake):
    """Whoever is linked has to greet again."""
    for peer in list(fake.server.sessions):
        fake.send(peer, [b""])


def test_a_tail_that_differs_leads_one_epoch_back_and_then_to_the_beginning(fake_and_slave, source):
    fake, slave = fake_and_slave
    end = slave.at(Position.APPENDED)
    drop(fake)
    fake.facts = welcome(source, end, tail_crc=1)
    fake.until(lambda: fake.greetings[-1]["before"] == NEXT, "the slave asks for one epoch less")
    assert "are not ours: one epoch back" in slave.store.node_log.read_text()
    fake.facts = welcome(source, end)
    assert fake.await_ack()[2] == end  # what differed was the forged sum alone
    assert fake.greetings[-1]["epochs"] == [[NUMBER, 0], [NEXT, source[1][40]]]


def test_what_was_confirmed_is_not_cut_off_for_a_master_that_lacks_it(fake_and_slave, source):
    fake, slave = fake_and_slave
    log, starts = source
    drop(fake)
    fake.facts = welcome(source, starts[19], common=NUMBER)
    said = f"only up to {starts[19]}, and up to {starts[20]} it was confirmed here"
    fake.until(lambda: said in slave.store.node_log.read_text(), "the slave says why")
    assert "towline slave accept-loss" in slave.store.node_log.read_text()
    assert not slave.store.truncate.exists()
    fake.until(lambda: said in read_status(slave.store.root)["master"]["why"], "status says so too")
    assert held(slave)[: starts[60]] == log[: starts[60]]


def test_a_set_that_is_older_than_the_recorded_one_is_neither_recorded_nor_acknowledged(fake_and_slave, source):
    fake, slave = fake_and_slave
    peer, _ = linked(fake, slave, source)
    for version in (5, 3, 6):
        fake.send(peer, [HA_SET.pack(Kind.HA_SET, NEXT, version, 2, 0b110, 2)])
    assert fake.await_recorded(2) == [5, 6]
    assert InSyncFile(slave.store).load() == InSyncRecord(NEXT, 6, 2, 0b110, 2)
    assert "version 3, is not recorded: set 5 of epoch" in slave.store.node_log.read_text()


def test_a_set_of_a_master_that_was_replaced_ends_its_link(fake_and_slave, source):
    fake, slave = fake_and_slave
    later = InSyncRecord(NEXT + 256, 1, 3, 0b1010, 2)
    InSyncFile(slave.store).save(later)
    peer, end = linked(fake, slave, source)
    fake.facts = welcome(source, end)
    fake.send(peer, [HA_SET.pack(Kind.HA_SET, NEXT, 7, 2, 0b110, 2)])
    fake.await_greeting()
    assert "comes too late: set 1 of epoch" in fake.told.pop()
    assert InSyncFile(slave.store).load() == later


def test_a_slave_leaves_a_master_below_its_promise_and_follows_none_again(fake_and_slave, source):
    """The last one: the slave keeps its promise."""
    fake, slave = fake_and_slave
    fake.facts = welcome(source, slave.at(Position.APPENDED))
    peer, end = linked(fake, slave, source)
    promised = number_of(4, 3)
    question = {"op": PROMISE, "epoch": promised, "node": 3}
    answers, _ = ask_peers(open_node(slave.store.root), {"it": f"ipc://{slave.runtime}/ha.sock"}, question, 10_000)
    assert answers["it"]["granted"]
    said = f"epoch {promised} was promised to node 3, the master's is {NEXT}"
    fake.until(lambda: said in slave.store.node_log.read_text(), "it leaves")
    before = held(slave)
    fake.data(peer, NEXT, end, source[0][end : end + 500])
    assert fake.await_greeting()["promised"] == promised
    refused = f"its epoch is {NEXT}, and we know {promised}"
    fake.until(lambda: refused in slave.store.node_log.read_text(), "it is refused")
    assert (held(slave), slave.at(Position.APPENDED)) == (before, end)
