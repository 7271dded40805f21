"""Who becomes master: a table of what a node knows and what follows."""

from dataclasses import replace

import pytest

from towline.errors import AloneRefused, DoubtRefused, MalformedFrame, PromotionRefused
from towline.format.files.epochs import Epoch, number_of
from towline.log.state.in_sync_file import FLOOR_UNKNOWN, InSyncRecord, mask_of
from towline.node.roles.agreement import Report, may_promote, next_epoch, on_start, report_of

MANY = 9  # a floor that lowers no other one


def epoch_of(term: int, node: int) -> int:
    return number_of(term, node)


def node(number: int, *, term: int = 1, of: int = 0, end: int = 1000, members: tuple[int, ...] = (0, 1, 2)) -> Report:
    """Its newest bytes were written in that term, under node `of`."""
    epoch = epoch_of(term, of)
    return Report(
        node=number,
        role="slave",
        following=epoch,
        epochs=(Epoch(0, 0), Epoch(epoch, 10)),
        end=end,
        confirmed=end,
        promised=0,
        promised_node=-1,
        in_sync=InSyncRecord(epoch, 1, of, mask_of(members), MANY),
        floor=MANY,
    )


OWN = node(0)
DOUBTED = replace(OWN, doubted=True)
FRESH = Report(0, "slave", 0, (Epoch(0, 0),), 0, 0, 0, -1, None)


def promised(report: Report, term: int, to: int, floor: int = FLOOR_UNKNOWN) -> Report:
    return replace(report, promised=epoch_of(term, to), promised_node=to, promised_floor=floor)


LATER = InSyncRecord(epoch_of(3, 1), 1, 1, mask_of((1,)))  # of a node that was master of that epoch


class TestOnStart:
    @pytest.mark.parametrize(
        ("own", "answers", "role", "master", "why"),
        [
            (OWN, [node(1), node(2)], "master", 0, "no peer knows"),
            (OWN, [node(1, end=900)], "master", 0, "no peer knows"),
            (DOUBTED, [node(1, end=1001)], "slave", -1, "promote` that node"),
            (replace(OWN, in_sync=LATER), [node(1, end=1001)], "slave", -1, "promote` that node"),
            (OWN, [node(1, end=1001)], "master", 0, "no peer knows"),
            (OWN, [node(1, term=3, of=1)], "slave", -1, "bytes of epoch 769"),
            (OWN, [replace(node(1, term=3, of=1), role="master")], "slave", 1, "bytes of epoch 769"),
            (OWN, [replace(node(2), following=epoch_of(3, 1))], "slave", 1, "knows epoch 769 of node 1"),
            (OWN, [promised(node(2), 3, 1)], "slave", 1, "knows epoch 769 of node 1"),
            (promised(OWN, 3, 0), [promised(node(2), 3, 0)], "master", 0, "no peer knows"),
            (promised(OWN, 3, 1), [node(1), promised(node(2), 3, 1)], "master", 0, "no peer knows"),
            (promised(OWN, 3, 1), [promised(node(1), 3, 1), node(2)], "slave", 1, "has promised epoch 769"),
            (promised(OWN, 3, 1), [replace(node(1), role="master"), node(2)], "slave", 1, "has promised epoch 769"),
            (promised(OWN, 3, 1), [replace(node(1), in_sync=LATER), node(2)], "slave", 1, "has promised epoch 769"),
            (promised(OWN, 3, 1), [node(2)], "slave", 1, "has promised epoch 769"),
            (OWN, [node(1), promised(node(2), 3, 1)], "master", 0, "no peer knows"),
            (OWN, [replace(node(1), role="master")], "master", 0, "no peer knows"),
            (FRESH, [replace(FRESH, node=1)], "master", 0, "no peer knows"),
            (FRESH, [node(1)], "slave", -1, "bytes of epoch 256"),
        ],
    )
    def test_with_peers_that_answer(self, own, answers, role, master, why):
        verdict = on_start(own, answers, [], floor=1, alone=False)
        assert (verdict.role, verdict.master) == (role, master)
        assert why in verdict.why

    @pytest.mark.parametrize(
        ("own", "floor", "alone", "why"),
        [
            (FRESH, 1, False, "the first start"),
            (OWN, 1, True, "--alone"),
            (OWN, 2, False, "nothing is acknowledged before 2"),
        ],
    )
    def test_with_silent_peers(self, own, floor, alone, why):
        verdict = on_start(own, [], ["1", "2"], floor=floor, alone=alone)
        assert verdict.role == "master"
        assert why in verdict.why

    @pytest.mark.parametrize(
        ("answers", "silent"),
        [([], ["1", "2"]), ([replace(node(1), doubted=True)], ["2"])],
        ids=["nobody answers", "one that is in doubt itself"],
    )
    @pytest.mark.parametrize("floor", [1, 2])
    def test_in_doubt_with_silent_members_that_may_hold_what_it_has_lost(self, answers, silent, floor):
        with pytest.raises(DoubtRefused, match="node 2 may hold it"):
            on_start(DOUBTED, answers, silent, floor=floor, alone=False)
        assert on_start(DOUBTED, answers, silent, floor=floor, alone=True).role == "master"

    @pytest.mark.parametrize(
        ("own", "answers", "silent"),
        [
            (DOUBTED, [node(1)], ["2"]),
            (DOUBTED, [replace(node(1), doubted=True), replace(node(2), doubted=True)], []),
            (replace(node(0, members=(0, 1)), doubted=True), [node(1)], ["2"]),
            (replace(FRESH, doubted=True), [], ["1", "2"]),
            (OWN, [replace(node(1), doubted=True)], ["2"]),
        ],
        ids=[
            "one that lost nothing answers",
            "all answer",
            "the other member has lost nothing",
            "its first start",
            "no doubt",
        ],
    )
    def test_nothing_is_waited_for_where_nobody_can_hold_more(self, own, answers, silent):
        assert on_start(own, answers, silent, floor=2, alone=False).role == "master"

    @pytest.mark.parametrize("floor", [1, 2])
    @pytest.mark.parametrize("members", [[0], [0, 1]])
    def test_in_doubt_each_that_is_silent_may_hold_what_it_has_lost_though_it_is_no_member_any_more(
        self, members, floor
    ):
        """It may have been one when it was acknowledged: nothing need have been since it left."""
        own = replace(DOUBTED, in_sync=InSyncRecord(256, 3, 0, mask_of(members), floor))
        doubted = replace(node(1), doubted=True)
        with pytest.raises(DoubtRefused, match="node 2 may hold it"):
            on_start(own, [doubted], ["2"], floor=floor, alone=False)
        assert on_start(own, [doubted, node(2)], [], floor=floor, alone=False).role == "master"

    def test_with_silent_peers_that_might_go_on_without_it(self):
        with pytest.raises(AloneRefused, match="none of its peers answers \\(1, 2\\)"):
            on_start(OWN, [], ["2", "1"], floor=1, alone=False)

    def test_a_promise_to_another_counts_though_nobody_answers(self):
        assert on_start(promised(OWN, 3, 1), [], ["1", "2"], floor=2, alone=True).role == "slave"


class TestMayPromote:
    KNOWN = (0, 1, 2)

    @pytest.mark.parametrize(
        ("own", "answers", "granted", "floor"),
        [
            (OWN, [node(1)], [1], 2),
            (OWN, [node(1), node(2)], [1, 2], 1),
            (OWN, [replace(node(1, end=2000), role="master", confirmed=1000), node(2)], [1, 2], 2),
            (OWN, [replace(node(1, end=1001), confirmed=1000)], [1], 2),
            (OWN, [replace(node(1, end=900), confirmed=800), replace(node(2, end=2000), confirmed=1000)], [1, 2], 2),
            (DOUBTED, [node(1)], [1], 2),
        ],
        ids=[
            "one of three is silent",
            "all promise",
            "a living master that holds more, none of it confirmed",
            "another member that holds more, none of it confirmed",
            "several of them",
            "one that may have lost something, and holds as much as the others",
        ],
    )
    def test_allowed(self, own, answers, granted, floor):
        may_promote(own, {one.node: one for one in answers}, granted, self.KNOWN, floor=floor)

    @pytest.mark.parametrize(
        ("own", "answers", "granted", "floor", "why"),
        [
            (OWN, [node(1)], [1], 1, "without a promise of node 2"),
            (OWN, [], [], 2, "without a promise of node 1, node 2"),
            # Node 2 may have joined, and node 0 have left, without a word to node 0.
            (node(0, members=(0, 1)), [], [], 2, "without a promise of node 1, node 2"),
            (OWN, [node(1), node(2)], [1], 1, "without a promise of node 2"),
            (OWN, [node(1, end=1001)], [1], 2, "node 1 holds the log to 1001"),
            # A master may have gone on alone, or what it acknowledged may be gone: then every byte counts.
            (OWN, [replace(node(1, end=1001), confirmed=1000), node(2)], [1, 2], 1, "node 1 holds the log to 1001"),
            (DOUBTED, [replace(node(1, end=1001), confirmed=900)], [1], 2, "node 1 holds the log to 1001"),
            (
                DOUBTED,
                [replace(node(1, end=1001), role="master", confirmed=900)],
                [1],
                2,
                "node 1 holds the log to 1001",
            ),
            (
                node(0, members=(1, 2)),
                [replace(node(1, end=1001), confirmed=900)],
                [1],
                2,
                "node 1 holds the log to 1001",
            ),
            # What it holds of a later epoch is another history.
            (OWN, [replace(node(1, term=3, of=1, end=1001), confirmed=900)], [1], 2, "900 of epoch 769"),
            (OWN, [replace(node(1), role="master", confirmed=1001)], [1], 2, "node 1 holds the log to 1001"),
            (OWN, [node(1, term=3, of=1, end=900)], [1], 2, "node 1 holds the log to 900 of epoch 769"),
            (node(0, members=(1, 2)), [node(1, end=900)], [1], 2, "not in the in-sync set of epoch 256, which is 1, 2"),
            (DOUBTED, [replace(node(1), doubted=True)], [1], 2, "node 2 may hold it"),
        ],
    )
    def test_refused(self, own, answers, granted, floor, why):
        with pytest.raises(PromotionRefused, match=why):
            may_promote(own, {one.node: one for one in answers}, granted, self.KNOWN, floor=floor)

    def test_the_newest_record_that_anybody_has_counts(self):
        later = replace(node(1), in_sync=InSyncRecord(256, 2, 2, mask_of([1, 2]), MANY))
        with pytest.raises(PromotionRefused, match="which is 1, 2"):
            may_promote(OWN, {1: later}, [1], self.KNOWN, floor=2)

    @pytest.mark.parametrize(
        ("recorded", "answered", "granted", "promoted"),
        [(2, 2, [2], True), (1, 2, [2], False), (2, 1, [2], False), (1, 1, [1, 2], True)],
        ids=["both", "of the set that was recorded", "of a node that answers", "all promise"],
    )
    def test_the_least_floor_that_is_known_decides_who_may_be_silent(self, recorded, answered, granted, promoted):
        """While it is raised node by node: here it is 2 already."""
        own = replace(OWN, in_sync=replace(OWN.in_sync, floor=recorded))
        answers = {peer: replace(node(peer), floor=answered) for peer in granted}
        if promoted:
            may_promote(own, answers, granted, self.KNOWN, floor=2)
        else:
            with pytest.raises(PromotionRefused, match="is 2 here, and was 1 elsewhere"):
                may_promote(own, answers, granted, self.KNOWN, floor=2)

    @pytest.mark.parametrize("whose", [0, 1], ids=["its own promise", "that of a node that answers"])
    @pytest.mark.parametrize(
        ("term", "floor", "allowed"),
        [(3, 1, False), (3, 2, True), (0, 1, True)],
        ids=["may have gone on alone", "needs another one as well", "has said since what it needs"],
    )
    def test_who_was_promised_an_epoch_and_is_silent_may_have_gone_on_under_its_floor(
        self, whose, term, floor, allowed
    ):
        """Node 2 was promised an epoch, and nobody who answers has heard a set of it."""
        reports = [node(0), node(1)]
        reports[whose] = promised(reports[whose], term, 2, floor)
        own, other = reports
        if allowed:
            may_promote(own, {1: other}, [1], self.KNOWN, floor=2)
        else:
            with pytest.raises(PromotionRefused, match="is 2 here, and was 1 elsewhere"):
                may_promote(own, {1: other}, [1], self.KNOWN, floor=2)

    def test_where_nobody_has_a_record_each_node_has_to_promise(self):
        """A master with a lower min_in_sync_replicas may have gone on alone, and told nobody who answers."""
        own, other = (replace(node(number), in_sync=None) for number in (0, 1))
        with pytest.raises(PromotionRefused, match="is 2 here, and may be less there"):
            may_promote(own, {1: other}, [1], self.KNOWN, floor=2)
        may_promote(own, {1: other, 2: replace(node(2), in_sync=None)}, [1, 2], self.KNOWN, floor=2)

    def test_who_was_elected_need_not_hear_the_silent(self):
        may_promote(OWN, {}, [], self.KNOWN, floor=1, elected=True)
        with pytest.raises(PromotionRefused, match="node 1 holds"):
            may_promote(OWN, {1: node(1, end=1001)}, [1], self.KNOWN, floor=1, elected=True)

    def test_where_sets_stand_in_etcd_no_node_that_holds_more_is_passed_over_by_hand(self):
        """The set may be nodes 1 and 2 by now, and 2 is down: node 1 has not heard of it, nor that all is confirmed."""
        answers = {1: replace(node(1, end=1001), confirmed=1000)}
        may_promote(OWN, answers, [1], self.KNOWN, floor=2)
        may_promote(OWN, answers, [1], self.KNOWN, floor=2, elected=True, sets_in_etcd=True)
        with pytest.raises(PromotionRefused, match="node 1 holds the log to 1001"):
            may_promote(OWN, answers, [1], self.KNOWN, floor=2, sets_in_etcd=True)

    def test_a_slave_that_knows_its_master_alone_needs_its_promise(self):
        with pytest.raises(PromotionRefused, match="a promise of the master"):
            may_promote(node(1, members=(0, 1)), {}, [], [1, -1], floor=1)


class TestNextEpoch:
    @pytest.mark.parametrize(
        ("own", "answers", "promotion", "epoch"),
        [
            (FRESH, [], False, epoch_of(1, 0)),
            (OWN, [], False, epoch_of(2, 0)),
            (OWN, [node(1)], True, epoch_of(3, 0)),
            (OWN, [promised(node(1), 5, 2)], True, epoch_of(7, 0)),
            (promised(OWN, 2, 0), [], False, epoch_of(2, 0)),
            (promised(OWN, 4, 0), [], False, epoch_of(4, 0)),
            (promised(OWN, 4, 0), [], True, epoch_of(6, 0)),
            (promised(OWN, 4, 1), [], False, epoch_of(5, 0)),
            (promised(DOUBTED, 4, 0), [], False, epoch_of(5, 0)),  # others may hold bytes of 4 that it has lost
        ],
    )
    def test_is_above_all_that_is_known(self, own, answers, promotion, epoch):
        assert next_epoch(own, answers, promotion=promotion) == epoch

    def test_a_plain_restart_never_outbids_a_promotion(self):
        """Whatever the numbers of the two nodes are, and however often the old master starts alone."""
        for old in (0, 1):
            new = 1 - old
            master, slave = node(old, of=old), node(new, of=old)
            promotion = next_epoch(slave, [], promotion=True)
            for _ in range(3):
                alone = next_epoch(master, [], promotion=False)
                master = replace(master, promised=alone, promised_node=old)  # nothing is written in it
            assert alone < promotion


FACTS = {
    "node": 1,
    "role": "slave",
    "epoch": 256,
    "epochs": [[0, 0], [256, 10]],
    "end": 20,
    "confirmed": 15,
    "promised": 0,
    "promised_node": -1,
    "in_sync": [0, 1],
    "in_sync_epoch": 256,
    "in_sync_version": 3,
    "in_sync_master": 0,
}


class TestReports:
    def test_are_read(self):
        report = report_of(FACTS)
        assert (report.node, report.reach, report.in_sync.ids) == (1, (256, 20), [0, 1])
        assert report_of(FACTS | {"in_sync": []}).in_sync is None
        assert (report.floor, report.in_sync.floor) == (1, 1), "of a node that does not say"
        said = report_of(FACTS | {"floor": 3, "in_sync_floor": 2})
        assert (said.floor, said.in_sync.floor) == (3, 2)
        assert (report.doubted, report_of(FACTS | {"doubted": False}).doubted) == (True, False)

    def test_an_epoch_of_which_it_holds_nothing_does_not_count(self):
        assert report_of(FACTS | {"end": 10}).reach == (0, 10)

    @pytest.mark.parametrize(
        "facts",
        [{"node": None}, {"epochs": [[256, 10], [0, 0]]}, {"epochs": "x"}, {"end": "x"}, {"in_sync": [99]}],
        ids=str,
    )
    def test_that_make_no_sense_are_refused(self, facts):
        with pytest.raises(MalformedFrame):
            report_of(FACTS | facts)
