"""The one word for what a group is in."""

import pytest

from towline.cluster.state import GroupState, NodeState, Seen, cluster_state, group_state

RUNS, STOPPED, AWAY = NodeState.RUNNING, NodeState.STOPPED, NodeState.ELSEWHERE


def nodes(*given):
    """(state, role, follows) each."""
    return [Seen("a", number, state, role=role, follows=follows) for number, (state, role, follows) in enumerate(given)]


MASTER, SLAVE, LOOSE = (RUNS, "master", False), (RUNS, "slave", True), (RUNS, "slave", False)
DOWN, BEGINS, FAR, FAR_FOLLOWS = (
    (STOPPED, "", False),
    (NodeState.STARTING, "", False),
    (AWAY, "", False),
    (AWAY, "", True),
)


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        ((MASTER,), GroupState.OK),
        ((MASTER, SLAVE, SLAVE), GroupState.OK),
        ((SLAVE, MASTER), GroupState.OK),
        ((MASTER, LOOSE), GroupState.DEGRADED),
        ((MASTER, DOWN), GroupState.DEGRADED),
        ((MASTER, BEGINS), GroupState.DEGRADED),
        ((MASTER, FAR), GroupState.DEGRADED),
        ((MASTER, FAR_FOLLOWS), GroupState.OK),
        ((LOOSE, DOWN), GroupState.NO_MASTER),
        ((LOOSE, LOOSE), GroupState.NO_MASTER),
        ((LOOSE, FAR), GroupState.ELSEWHERE),
        ((LOOSE, (AWAY, "slave", False)), GroupState.NO_MASTER),
        ((SLAVE, (AWAY, "master", False)), GroupState.OK),
        ((MASTER, (AWAY, "master", False)), GroupState.TWO_MASTERS),
        ((FAR, FAR), GroupState.ELSEWHERE),
        ((DOWN, DOWN), GroupState.STOPPED),
        ((DOWN, FAR), GroupState.STOPPED),
        ((BEGINS, DOWN), GroupState.STOPPED),
        ((MASTER, MASTER), GroupState.TWO_MASTERS),
    ],
)
def test_of_a_group(seen, state):
    assert group_state(nodes(*seen)) is state


@pytest.mark.parametrize(
    ("groups", "state"),
    [
        ((GroupState.OK, GroupState.OK), "ok"),
        ((GroupState.STOPPED,), "stopped"),
        ((GroupState.OK, GroupState.DEGRADED), "partly degraded"),
        ((GroupState.NO_MASTER, GroupState.DEGRADED), "partly no master"),
        ((GroupState.OK, GroupState.STOPPED), "partly stopped"),
    ],
)
def test_of_a_cluster_is_that_of_its_worst_group(groups, state):
    assert cluster_state(groups) == state
