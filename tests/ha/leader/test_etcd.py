"""Leadership in a real etcd: of those who try one wins, and only who may; and what a client makes of a silent etcd."""

import http.server
import json
import logging
import socket
import threading
import time
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from tests.etcd_server import free_port, running
from tests.processes.waiting import await_
from towline.clock import SystemClock
from towline.errors import EtcdUnavailable, MalformedKey
from towline.format.files.epochs import node_of, number_of
from towline.ha.leader.election import BACK_OFF_MS, GIVE_WAY_MS, Candidate, LeaderProbe, listens
from towline.ha.leader.leadership import (
    GroupView,
    Leader,
    Leadership,
    NodeProgress,
    RecordedSet,
    better_candidate,
    may_stand,
    next_epoch,
)
from towline.ha.leader.lease import NS_PER_MS, LeaseKeeper
from towline.node.process.context import Node
from towline.places import Runtime, Store
from towline.route.etcd import Etcd
from towline.runtime.positions import Duty, Position, Positions
from towline.runtime.settings import read_settings

EMPTY = GroupView(None, 0, 0, None)
WHERE = {"ha": ["tcp://127.0.0.1:1"], "remoting": []}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    yield from running(tmp_path_factory.mktemp("etcd"))


@pytest.fixture
def etcd(server):
    made = Etcd([server.url], timeout_s=5.0)
    yield made
    made.close()


@pytest.fixture
def leadership(etcd, request):
    return Leadership(etcd, "cluster/one", request.node.name)


def claimed(etcd, leadership, node=0, ttl_s=60):
    view = leadership.read()
    lease, _ = etcd.grant(ttl_s)
    assert leadership.claim(view, next_epoch(view, node, 0), lease, WHERE)
    return leadership.read()


def answers(etcd):
    try:
        return etcd.keep_alive(1) == 0
    except EtcdUnavailable:
        return False


class TestTheClient:
    def test_keys_come_back_as_they_were_put(self, etcd):
        assert etcd.swap({}, ["/a/é"], {"/a/é": (b"\x00\xff", 0)})
        found = etcd.read("/a/")
        assert (found["/a/é"].value, found["/a/é"].lease) == (b"\x00\xff", 0)
        assert "/a/é" not in etcd.read("/b")

    def test_nothing_is_put_when_one_condition_fails(self, etcd):
        assert etcd.swap({}, ["/c"], {"/c": (b"1", 0)})
        changed = etcd.read("/c")["/c"].changed
        assert not etcd.swap({}, ["/c"], {"/c": (b"2", 0)})
        assert not etcd.swap({"/c": changed + 1}, [], {"/c": (b"2", 0)})
        assert etcd.read("/c")["/c"].value == b"1"
        assert etcd.swap({"/c": changed}, [], {"/c": (b"2", 0)})

    def test_a_lease_takes_its_keys_with_it(self, etcd):
        lease, ttl_s = etcd.grant(60)
        assert 0 < etcd.keep_alive(lease) <= ttl_s
        assert etcd.swap({}, ["/l"], {"/l": (b"1", lease)})
        assert etcd.read("/l")["/l"].lease == lease
        etcd.revoke(lease)
        assert etcd.read("/l") == {}
        assert etcd.keep_alive(lease) == 0
        etcd.revoke(lease)  # over already: no error

    def test_the_next_endpoint_is_asked_where_one_is_dead(self, server):
        etcd = Etcd([f"http://127.0.0.1:{free_port()}", server.url], timeout_s=5.0)
        assert etcd.read("/nothing") == {}
        etcd.close()

    def test_no_endpoint_at_all_is_an_error_that_names_each(self):
        urls = [f"http://127.0.0.1:{free_port()}" for _ in range(2)]
        with pytest.raises(EtcdUnavailable) as caught:
            Etcd(urls).read("/")
        assert all(url in str(caught.value) for url in urls)

    def test_one_that_is_silent_costs_its_time_out_and_no_more(self, server):
        with closing(Etcd([server.url], timeout_s=0.3)) as etcd:
            server.pause()
            try:
                began = time.monotonic()
                with pytest.raises(EtcdUnavailable):
                    etcd.keep_alive(1)
                assert time.monotonic() - began < 5
            finally:
                server.go_on()
            await_(lambda: answers(etcd), 20.0, "etcd is asked again")

    @pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b'{"error":"no","code":13,"message":"no"}'])
    def test_whatever_answers_in_its_place_is_no_etcd(self, answer):
        class Other(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        with http.server.HTTPServer(("127.0.0.1", 0), Other) as listening:
            thread = threading.Thread(target=listening.handle_request)
            thread.start()
            with pytest.raises(EtcdUnavailable):
                Etcd([f"http://127.0.0.1:{listening.server_port}"], timeout_s=5.0).read("/")
            thread.join()


class TestLeadership:
    def test_an_empty_etcd_knows_nothing(self, leadership):
        assert leadership.read() == EMPTY

    def test_the_first_claim_wins_and_the_second_finds_the_first(self, etcd, leadership):
        view = leadership.read()
        lease, other = etcd.grant(60)[0], etcd.grant(60)[0]
        assert leadership.claim(view, 256, lease, WHERE)
        assert not leadership.claim(view, 257, other, WHERE)
        found = leadership.read()
        assert (found.leader.node, found.leader.epoch, found.leader.lease, found.term) == (0, 256, lease, 1)

    def test_a_claim_fails_when_the_set_has_changed_meanwhile(self, etcd, leadership):
        view = claimed(etcd, leadership)
        assert leadership.record(view, RecordedSet(256, 0b111))
        etcd.revoke(view.leader.lease)
        stale = leadership.read()
        lease = etcd.grant(60)[0]
        assert leadership.claim(stale, 513, lease, WHERE)
        assert leadership.record(leadership.read(), RecordedSet(513, 0b010))
        etcd.revoke(lease)
        assert not leadership.claim(stale, 769, etcd.grant(60)[0], WHERE)
        assert leadership.read().leader is None

    def test_who_was_replaced_records_nothing_any_more(self, etcd, leadership):
        old = claimed(etcd, leadership)
        assert leadership.record(old, RecordedSet(256, 0b111))
        etcd.revoke(old.leader.lease)
        claimed(etcd, leadership, node=1)
        assert not leadership.record(leadership_view(old, leadership), RecordedSet(256, 0b001))
        assert not leadership.begin_term(leadership_view(old, leadership), RecordedSet(512, 0b001), WHERE)
        assert leadership.read().in_sync.members == 0b111

    def test_who_leads_says_its_epoch_and_keeps_its_lease(self, etcd, leadership):
        view = claimed(etcd, leadership)
        assert leadership.begin_term(view, RecordedSet(1024, 0b1), WHERE)
        found = leadership.read()
        assert (found.in_sync.epoch, found.in_sync.members) == (1024, 0b1)
        assert (found.leader.epoch, found.leader.lease, found.term) == (1024, view.leader.lease, 4)
        assert found.leader.created == view.leader.created

    def test_a_key_that_somebody_wrote_by_hand_is_refused(self, etcd, leadership):
        assert etcd.swap({}, [], {leadership._key("in_sync"): (b'{"epoch": 1, "members": ["x"]}', 0)})
        with pytest.raises(MalformedKey, match="names no nodes"):
            leadership.read()


def leadership_view(old, leadership):
    """What a paused master believes: itself, and the set as it is now."""
    return GroupView(old.leader, old.term, old.term_changed, leadership.read().in_sync)


class TestWhoMayStand:
    RECORDED = GroupView(None, 3, 7, RecordedSet(768, 0b011, 9))

    def test_only_the_founder_where_nothing_was_recorded(self):
        assert may_stand(EMPTY, 0, founder=True) == ""
        assert "first" in may_stand(EMPTY, 1, founder=False)

    def test_only_a_member_of_the_recorded_set(self):
        assert [node for node in range(4) if not may_stand(self.RECORDED, node, founder=True)] == [0, 1]

    def test_the_one_that_holds_most_goes_first_if_it_is_a_member(self):
        own = NodeProgress(1, 768, 500)
        assert better_candidate(self.RECORDED, own, [NodeProgress(0, 768, 501)]).node == 0
        assert better_candidate(self.RECORDED, own, [NodeProgress(0, 769, 10)]).node == 0
        assert better_candidate(self.RECORDED, own, [NodeProgress(0, 768, 500)]).node == 0  # of equals the smallest id
        assert better_candidate(self.RECORDED, own, [NodeProgress(0, 768, 499), NodeProgress(2, 9999, 9999)]) is None

    def test_the_epoch_of_a_new_leader_is_above_all_that_is_known(self):
        assert next_epoch(self.RECORDED, 1, 0) == 4 * 256 + 1
        assert next_epoch(self.RECORDED, 1, 9 * 256 + 2) == 10 * 256 + 1
        assert next_epoch(EMPTY, 0, 0) == 256


class TestThePulseOfALeader:
    SPOKEN = Leader(0, 512, 1, created=10, changed=12, role="SYNC_MASTER")

    def feel(self, leader, *seen):
        """`seen`: (ms, whether somebody listens) in turn."""
        pulse = LeaderProbe()
        return [pulse.is_dead(leader, listens=listening, now_ms=now) for now, listening in seen]

    def test_one_that_listened_and_does_not_for_a_second_is_dead(self):
        seen = [(0, True), (200, False), (1199, False), (1200, False)]
        assert self.feel(self.SPOKEN, *seen) == [False, False, False, True]

    def test_a_sender_that_is_started_again_begins_anew(self):
        seen = [(0, True), (200, False), (1000, True), (1200, False), (2199, False)]
        assert not any(self.feel(self.SPOKEN, *seen))

    def test_one_that_is_being_promoted_is_given_its_time(self):
        assert not any(self.feel(self.SPOKEN, (0, False), (60_000, False)))

    def test_the_life_of_one_leadership_says_nothing_about_the_next(self):
        pulse = LeaderProbe()
        pulse.is_dead(self.SPOKEN, listens=True, now_ms=0)
        following = Leader(1, 769, 2, created=20, changed=21, role="SYNC_MASTER")
        assert not any(pulse.is_dead(following, listens=False, now_ms=now) for now in (1, 60_000))

    @pytest.mark.parametrize(
        ("role", "members", "ended"),
        [
            ("SYNC_MASTER", 0b011, True),
            ("SYNC_MASTER", 0b101, False),  # it may acknowledge without us
            ("ASYNC_MASTER", 0b011, False),  # it acknowledges without anybody
            ("SLAVE", 0b011, False),  # it is being promoted: nobody listens for a while
        ],
    )
    @pytest.mark.parametrize("least", [1, 2])
    def test_a_lease_is_ended_only_where_nothing_was_promised_without_us(
        self, etcd, leadership, tmp_path, monkeypatch, role, members, ended, least
    ):
        given = {"broker_role": "SLAVE", "broker_id": "1", "ha_peers": "0=127.0.0.1:1,1=127.0.0.1:2"}
        given |= {"total_replicas": "2", "in_sync_replicas": "2", "min_in_sync_replicas": str(least)}
        log = logging.getLogger("election")
        node: Any = SimpleNamespace(settings=read_settings(None, given, {}), runtime=Runtime(tmp_path), log=log)
        assert leadership.begin_term(
            claimed(etcd, leadership), RecordedSet(512, members), WHERE | {"broker_role": role}
        )
        candidate = Candidate(node, etcd, leadership)
        for now_ms, listening in ((0, True), (100, False), (1200, False)):
            monkeypatch.setattr("towline.ha.leader.election.listens", lambda _, listening=listening: listening)
            assert leadership.read().leader is not None
            candidate.cycle(now_ms)
        assert (leadership.read().leader is None) == ended

    def test_only_a_host_that_answers_says_that_nobody_listens(self):
        assert not listens(f"127.0.0.1:{free_port()}")
        with socket.create_server(("127.0.0.1", 0)) as server:
            assert listens(f"127.0.0.1:{server.getsockname()[1]}")


class SlowEtcd:
    """CLOCK_BOOTTIME of a machine on which each answer about a lease takes a second to come."""

    def __init__(self, etcd, monkeypatch):
        self.now_ns = self.asked_ns = 1000 * NS_PER_MS
        for name in ("grant", "keep_alive"):
            monkeypatch.setattr(etcd, name, self._slowly(getattr(etcd, name)))
        for module in ("towline.ha.leader.election", "towline.ha.leader.lease"):
            monkeypatch.setattr(f"{module}.boottime_ns", lambda: self.now_ns)

    def _slowly(self, ask):
        def answer(*args):
            self.asked_ns = self.now_ns
            said = ask(*args)
            self.now_ns += 1000 * NS_PER_MS
            return said

        return answer


@pytest.fixture
def clock(etcd, monkeypatch):
    return SlowEtcd(etcd, monkeypatch)


def test_a_master_counts_its_lease_from_before_etcd_was_asked(etcd, leadership, clock, tmp_path):
    """Etcd counts from when it heard of it: the lease is over there before the answer has lasted as long here."""
    view = claimed(etcd, leadership)
    runtime = Runtime(tmp_path)
    settings = read_settings(None, {"broker_role": "SYNC_MASTER", "broker_id": "0", "lease_ms": "9000"}, {})
    positions = Positions.create(runtime.positions, 1)
    positions.writer(Position.EPOCH, Duty.RECOVER).advance(view.leader.epoch)
    log, store = logging.getLogger("lease"), Store(tmp_path)
    node = Node(store, runtime, settings, positions, Duty.LEASE, 1, log, SystemClock())
    LeaseKeeper(node, etcd, leadership).cycle(0)
    until_ns = positions.get(Position.LEASE_UNTIL)
    positions.close()
    assert until_ns == clock.asked_ns + 9000 * 9 // 10 * NS_PER_MS


class TestAMemberThatStands:
    """Node 1 of three, all of which are in the recorded set of epoch 512; node 0 led."""

    EPOCH = number_of(2, 0)

    @pytest.fixture
    def orders(self, monkeypatch):
        given: list[dict[str, Any]] = []
        monkeypatch.setattr("towline.ha.leader.election.submit_command", lambda _, order: given.append(order))
        return given

    @pytest.fixture
    def said(self, monkeypatch):
        """What the nodes say of themselves, by number; who is not in it is silent."""
        facts = {node: self.state(node) for node in range(3)}
        monkeypatch.setattr("towline.ha.leader.election.state_of", lambda node: facts[1])

        def answers(*_: object) -> tuple[dict[str, Any], dict[str, str]]:
            return {str(node): one for node, one in facts.items() if node != 1}, {}

        monkeypatch.setattr("towline.ha.leader.election.ask_peers", answers)
        return facts

    def state(self, node, *, end=1000, doubted=False):
        facts = {"node": node, "role": "slave", "epoch": self.EPOCH, "epochs": [[self.EPOCH, 0]], "end": end}
        facts |= {"confirmed": end, "promised": 0, "promised_node": -1, "doubted": doubted, "in_sync": [0, 1, 2]}
        return facts | {"in_sync_epoch": self.EPOCH, "in_sync_version": 1, "in_sync_master": 0}

    @pytest.fixture
    def candidate(self, etcd, leadership, tmp_path, said, orders):
        assert leadership.record(claimed(etcd, leadership), RecordedSet(self.EPOCH, 0b111))
        etcd.revoke(leadership.read().leader.lease)
        given = {"broker_role": "SLAVE", "broker_id": "1", "ha_peers": "0=127.0.0.1:1,1=127.0.0.1:2,2=127.0.0.1:3"}
        given |= {"lease_ms": "60000", "total_replicas": "3", "in_sync_replicas": "2", "min_in_sync_replicas": "2"}
        store = Store(tmp_path)
        store.run.mkdir()
        node: Any = SimpleNamespace(
            settings=read_settings(None, given, {}),
            runtime=Runtime(tmp_path),
            store=store,
            log=logging.getLogger("election"),
            line=SimpleNamespace(count=lambda _: None),
        )
        return Candidate(node, etcd, leadership)

    def stand(self, candidate, *, for_ms=2 * GIVE_WAY_MS):
        for now_ms in range(0, for_ms, 100):
            candidate.cycle(now_ms)

    @pytest.mark.parametrize(
        ("others", "stands"),
        [
            ({}, False),  # they may hold what it has lost
            ({0: {"doubted": True}}, False),  # and so may node 2
            ({0: {"doubted": True}, 2: {"doubted": True}}, True),  # whatever is left, it has
            ({2: {}}, True),  # a member that has lost nothing has no more
            ({2: {"end": 1001}}, False),
            ({0: {"doubted": True, "end": 1001}, 2: {"doubted": True}}, False),
        ],
        ids=str,
    )
    def test_in_doubt_only_when_nobody_can_hold_more(self, candidate, leadership, said, orders, others, stands):
        said.clear()
        said |= {1: self.state(1, doubted=True)} | {node: self.state(node, **facts) for node, facts in others.items()}
        self.stand(candidate)
        assert (len(orders) == 1, leadership.read().leader is not None) == (stands, stands)

    def test_one_that_was_promised_a_later_epoch_and_is_silent_goes_first_for_a_while(self, candidate, said, orders):
        """It was promoted by hand, and its processes are being started."""
        del said[0], said[2]
        said[1] |= {"promised": number_of(4, 2), "promised_node": 2}
        self.stand(candidate, for_ms=GIVE_WAY_MS)
        assert not orders
        self.stand(candidate, for_ms=2 * GIVE_WAY_MS)
        assert len(orders) == 1

    @pytest.mark.parametrize(
        "promised", [number_of(2, 0), number_of(4, 1), number_of(4, 7)], ids=["old", "own", "other"]
    )
    def test_no_other_promise_keeps_it_from_standing(self, candidate, said, orders, promised):
        del said[0], said[2]
        said[1] |= {"promised": promised, "promised_node": node_of(promised)}
        self.stand(candidate, for_ms=GIVE_WAY_MS)
        assert len(orders) == 1

    def test_and_without_doubt_whoever_is_silent(self, candidate, said, orders):
        del said[0], said[2]
        self.stand(candidate)
        assert len(orders) == 1

    def test_its_order_is_void_a_lease_after_etcd_was_asked_however_long_that_took(
        self, candidate, clock, said, orders
    ):
        del said[0]
        for now_ms in range(0, 2 * GIVE_WAY_MS, 100):
            if not orders:
                candidate.cycle(now_ms)
        assert orders[0]["until_ns"] == clock.asked_ns + 60_000 * NS_PER_MS

    def test_nor_one_that_it_takes_up_again(self, candidate, etcd, leadership, clock, said, orders):
        del said[0]
        claimed(etcd, leadership, node=1)
        candidate.cycle(0)
        assert orders[0]["until_ns"] == clock.asked_ns + 60_000 * NS_PER_MS

    def test_in_doubt_it_gives_back_what_it_won_before(self, candidate, etcd, leadership, said, orders):
        claimed(etcd, leadership, node=1)
        said |= {1: self.state(1, doubted=True)}
        del said[0], said[2]
        candidate.cycle(0)
        assert (orders, leadership.read().leader) == ([], None)

    @pytest.mark.parametrize("of_this_leadership", [True, False])
    def test_gives_the_leadership_back_only_if_its_own_promotion_failed(
        self, candidate, etcd, leadership, said, orders, of_this_leadership
    ):
        del said[0]  # of equals it would go first
        epoch = claimed(etcd, leadership, node=1).leader.epoch
        failed = {
            "order": "promote",
            "number": 1,
            "error": "no",
            "elected": epoch if of_this_leadership else epoch - 256,
        }
        candidate._node.store.order_result.write_text(json.dumps(failed))
        candidate.cycle(0)
        assert (len(orders), leadership.read().leader is None) == ((0, True) if of_this_leadership else (1, False))

    def test_lets_others_stand_when_its_supervisor_does_not_begin(
        self, candidate, leadership, said, orders, monkeypatch
    ):
        """And the order, if it is read at last, is void by then."""
        del said[0]
        self.stand(candidate)
        order = orders[0]
        assert order["elected"] == leadership.read().leader.epoch
        candidate.cycle(10_000)
        assert leadership.read().leader is not None
        monkeypatch.setattr("towline.ha.leader.election.boottime_ns", lambda: order["until_ns"])
        candidate.cycle(20_000)
        assert leadership.read().leader is None
        candidate.cycle(20_000 + BACK_OFF_MS - 1)
        assert (len(orders), leadership.read().leader) == (1, None)
