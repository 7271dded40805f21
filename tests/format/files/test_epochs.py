"""Epochs: the file's bytes, and that what two lists have in common is what two logs have in common."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from towline.errors import MalformedFile
from towline.format.files import epochs as algebra
from towline.format.files.epochs import ENTRIES_MAX, IMPLIED, Common, Epoch, checked, common_point, decode, encode

LIST = (Epoch(257, 0), Epoch(514, 4_096), Epoch(769, 1_073_741_824))
BYTES = b"3\n2048492404\n257-0\n514-4096\n769-1073741824\n"


def test_the_file_is_laid_out_as_rocketmq_does():
    assert encode(LIST) == BYTES
    assert decode(BYTES, "epochs") == LIST


def test_a_check_of_zero_is_not_checked_and_a_line_end_at_the_end_may_be_missing():
    assert decode(b"1\n0\n3-77", "epochs") == (Epoch(3, 77),)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(BYTES.replace(b"4096", b"4097"), "do not fit the check 2048492404", id="an offset edited"),
        pytest.param(BYTES.replace(b"514", b"513"), "do not fit the check", id="an epoch edited"),
        pytest.param(BYTES.replace(b"3\n", b"2\n", 1), "line 1 promises 2 entries, 3 follow", id="the count edited"),
        pytest.param(BYTES[:-20], "line 1 promises 3 entries, 2 follow", id="cut short"),
        pytest.param(BYTES.replace(b"2048492404", b"x"), "line 2 should be a number", id="no check"),
        pytest.param(b"", "line 1 should be a number", id="nothing"),
        pytest.param(b"\xff\xfe\n0\n", "line 1 should be a number", id="no text"),
        pytest.param(b"1\n0\n257\n", "line 3 should be epoch-startOffset, it is '257'", id="no offset"),
        pytest.param(b"1\n0\n-257-0\n", "line 3 should be epoch-startOffset", id="a negative epoch"),
        pytest.param(b"2\n0\n257-0\n256-5\n", "epoch 256 at 5 does not follow 257 at 0", id="epochs go back"),
        pytest.param(b"2\n0\n257-5\n258-5\n", "epoch 258 at 5 does not follow 257 at 5", id="an epoch of no length"),
        pytest.param(b"1\n0\n9223372036854775808-0\n", "is out of range", id="a number beyond 64 bits"),
    ],
)
def test_a_file_that_was_damaged_or_edited_is_refused_by_name(data, said):
    with pytest.raises(MalformedFile) as caught:
        decode(data, "epochs")
    assert said in str(caught.value)
    assert "epochs" in str(caught.value)


@pytest.mark.parametrize("pairs", [[1], [[1, 2, 3]], [["1", 2]], [[True, 2]], [[1.0, 2]], [[-1, 0]], ["ab"], [None]])
def test_a_list_in_a_greeting_is_looked_at_before_it_is_believed(pairs):
    with pytest.raises(ValueError, match=r"is no epoch and offset|is out of range"):
        checked(pairs)


def test_a_list_has_so_many_entries_at_most():
    full = tuple(Epoch(number, number) for number in range(1, ENTRIES_MAX + 1))
    assert checked([list(epoch) for epoch in full]) == full
    with pytest.raises(ValueError, match="are the most"):
        checked([*full, Epoch(ENTRIES_MAX + 1, ENTRIES_MAX + 1)])
    assert algebra.opened(full, 9_999, 10_000) == (*full[1:], Epoch(9_999, 10_000))


def test_numbers_of_epochs_name_their_node_and_rise_with_the_term():
    assert algebra.number_of(1, 62) == 256 + 62
    assert algebra.number_of(2, 0) == 512
    assert (algebra.term_of(512 + 3), algebra.node_of(512 + 3)) == (2, 3)


def test_an_epoch_of_which_the_log_holds_bytes_is_not_opened_again():
    assert algebra.opened(LIST, 770, 1_073_741_824) == (*LIST[:2], Epoch(770, 1_073_741_824))
    for number in (769, 768):
        with pytest.raises(ValueError, match="holds bytes of epoch 769"):
            algebra.opened(LIST, number, 1_073_741_825)


@pytest.mark.parametrize(
    ("log_min", "kept"), [(0, LIST), (4_095, LIST), (4_096, LIST[1:]), (2**30, LIST[2:]), (2**40, LIST[2:])]
)
def test_entries_wholly_below_the_logs_minimum_go_but_one_stays(log_min, kept):
    assert algebra.limited(LIST, log_min) == kept


@pytest.mark.parametrize(
    ("ours", "our_end", "theirs", "their_end", "before", "expected"),
    [
        pytest.param((), 500, (), 300, None, Common(0, 300), id="two stores from before there were epochs"),
        pytest.param(LIST, 2**30 + 9, LIST, 2**30 + 5, None, Common(769, 2**30 + 5), id="a slave that is behind"),
        pytest.param(LIST, 2**30 + 5, LIST, 2**30 + 9, None, Common(769, 2**30 + 5), id="a slave that is ahead"),
        pytest.param(LIST, 2**31, LIST[:2], 2**30 + 9, None, Common(514, 2**30), id="a tail of the master before"),
        pytest.param(LIST, 2**31, LIST[:2], 2**29, None, Common(514, 2**29), id="behind by an epoch"),
        pytest.param(LIST, 2**31, (*LIST[:2], Epoch(770, 2**30)), 2**31, None, Common(514, 2**30), id="forked"),
        pytest.param(LIST, 2**31, (*LIST[:2], Epoch(769, 5_000)), 2**31, None, Common(514, 5_000), id="other start"),
        pytest.param(LIST, 2**31, LIST, 2**31, 769, Common(514, 2**30), id="one step back"),
        pytest.param(LIST, 2**31, LIST, 2**31, 257, None, id="no step back is left"),
        pytest.param(LIST, 2**31, (Epoch(300, 0),), 7, None, None, id="nothing in common"),
    ],
)
def test_the_common_point(ours, our_end, theirs, their_end, before, expected):
    assert common_point(ours, our_end, theirs, their_end, before) == expected


def test_a_slave_takes_over_what_it_has_bytes_of_and_keeps_what_the_master_forgot():
    assert algebra.taken_over(IMPLIED, LIST, 4_096) == LIST[:2]
    assert algebra.taken_over(LIST, LIST[1:], 5_000) == LIST[:2]
    assert algebra.taken_over((Epoch(3, 0), Epoch(4, 6_000)), LIST[1:], 5_000) == (Epoch(3, 0), LIST[1])
    assert algebra.taken_over(LIST, (), 5_000) == LIST


class Histories(RuleBasedStateMachine):
    """Nodes that write, follow and are promoted in any order, each with whatever it was left with.

    A byte is named by who wrote it and when, so equal prefixes are known. Lists must find them exactly.
    """

    def __init__(self) -> None:
        super().__init__()
        self.logs: list[list[int]] = [[], [], []]
        self.lists: list[algebra.Epochs] = [(), (), ()]
        self.greatest = 0
        self.written = 0

    @rule(node=st.integers(0, 2), count=st.integers(0, 4))
    def write_as_a_new_master(self, node, count):
        self.greatest = algebra.number_of(algebra.term_of(self.greatest) + 1, node)
        self.lists[node] = algebra.opened(self.lists[node], self.greatest, len(self.logs[node]))
        for _ in range(count):
            self.written += 1
            self.logs[node].append(self.written)

    @rule(master=st.integers(0, 2), slave=st.integers(0, 2), count=st.integers(0, 5))
    def follow(self, master, slave, count):
        if master == slave:
            return
        ours, theirs = self.logs[master], self.logs[slave]
        point = self._point(master, slave)
        del theirs[point:]
        self.lists[slave] = algebra.cut(self.lists[slave], point)
        theirs += ours[point : point + count]
        self.lists[slave] = algebra.taken_over(self.lists[slave], self.lists[master], len(theirs))

    @rule(node=st.integers(0, 2), count=st.integers(1, 3))
    def lose_what_was_not_synced(self, node, count):
        log = self.logs[node]
        del log[max(len(log) - count, 0) :]
        self.lists[node] = algebra.cut(self.lists[node], len(log))

    def _point(self, master, slave):
        ours, theirs = self.logs[master], self.logs[slave]
        common = common_point(self.lists[master], len(ours), self.lists[slave], len(theirs))
        return common.point if common is not None else 0

    @invariant()
    def lists_are_sound(self):
        for log, entries in zip(self.logs, self.lists, strict=True):
            assert checked(entries) == entries
            assert not entries or decode(encode(entries), "list") == entries
            assert all(epoch.start <= len(log) for epoch in entries)

    @invariant()
    def the_common_point_is_where_the_logs_part(self):
        for master in range(3):
            for slave in range(3):
                pairs = zip(self.logs[master], self.logs[slave], strict=False)
                same = next((at for at, (one, other) in enumerate(pairs) if one != other), None)
                if same is None:
                    same = min(len(self.logs[master]), len(self.logs[slave]))
                assert self._point(master, slave) == same


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)


@given(st.lists(st.tuples(st.integers(0, 2**31), st.integers(0, 2**40)), max_size=20))
def test_whatever_list_is_written_is_read_again(pairs):
    numbers, starts = sorted({number for number, _ in pairs}), sorted({start for _, start in pairs})
    made = tuple(map(Epoch, numbers, starts))
    assert not made or decode(encode(made), "list") == made
