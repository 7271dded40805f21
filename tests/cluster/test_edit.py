"""Changes of a cluster file keep what its author wrote."""

import difflib
from pathlib import Path

import pytest

from towline.cluster.edit import with_changed_node, with_master, with_node, without_node
from towline.cluster.sample import group_name, sample
from towline.route.errors import BadCluster
from towline.route.file import parse_cluster

PATH = Path("/etc/towline/cluster.toml")
NEW = {"id": 2, "host": "127.0.0.1", "port": 12000, "store": "stores/new"}
INLINE = """\
name = "x"  # one line each
[[group]]
name = "a"
node = [
  { id = 0, port = 11000, store = "a" },  # the first
  { id = 1, port = 11020, store = "b" },
]
"""


@pytest.fixture(scope="module")
def text():
    return sample(2, 1, "demo", lambda port: True)


def changed(before, after):
    """(lines that went, lines that came), blank ones aside."""
    lines = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[2:].strip()]
    return [line[2:] for line in lines if line[0] == "-"], [line[2:] for line in lines if line[0] == "+"]


def test_a_sample_is_a_cluster_file_with_as_many_nodes_as_asked_for(text):
    cluster = parse_cluster(text, PATH)
    assert [(group.name, len(group.nodes)) for group in cluster.groups] == [("a", 2), ("b", 2)]
    assert [group_name(number) for number in (0, 25, 26)] == ["a", "z", "g26"]


def test_a_sample_takes_ports_that_are_free():
    taken = {11_001, 11_020}
    nodes = list(parse_cluster(sample(1, 1, "demo", lambda port: port not in taken), PATH).nodes)
    assert [node.ports["remoting"] for node in nodes] == [11_040, 11_060]
    with pytest.raises(ValueError, match="no ports"):
        sample(1, 0, "demo", lambda port: False)


@pytest.mark.parametrize("group", ["a", "b"])
def test_a_node_more_is_five_lines_at_the_end_of_its_group(text, group):
    after, cluster = with_node(text, PATH, group, NEW)
    assert [node.id for node in cluster.group(group).nodes] == [0, 1, 2]
    gone, came = changed(text, after)
    assert gone == []
    assert came == ["[[group.node]]", "id = 2", 'host = "127.0.0.1"', "port = 12000", 'store = "stores/new"']
    assert f"\n\n{came[0]}\n" in after


@pytest.mark.parametrize("group", ["a", "b"])
def test_a_node_less_takes_its_own_lines_along_and_no_others(text, group):
    more, _ = with_node(text, PATH, group, NEW)
    after, cluster = without_node(more, PATH, group, 2)
    assert cluster == parse_cluster(text, PATH)
    assert changed(text, after) == ([], [])
    after, _ = without_node(text, PATH, group, 1)
    gone, came = changed(text, after)
    assert (len(gone), came) == (5, [])


def test_a_changed_node_keeps_its_other_keys_and_the_comments(text):
    after, cluster = with_changed_node(text, PATH, "a", 1, {"id": 7, "store": "stores/other"})
    assert cluster.group("a").node(7).ports["remoting"] == 11_020
    gone, came = changed(text, after)
    assert (len(gone), len(came)) == (2, 2)
    assert came[1] == 'store = "stores/other"  # relative to this file'


def test_another_master_is_one_changed_line(text):
    after, cluster = with_master(text, PATH, "b", 1)
    assert [group.master for group in cluster.groups] == [0, 1]
    assert len(changed(text, after)[1]) == 1


def test_nodes_in_one_list_are_changed_as_well():
    after, cluster = with_node(INLINE, PATH, "a", NEW)
    assert len(cluster.group("a").nodes) == 3
    assert "# the first" in after
    after, cluster = without_node(after, PATH, "a", 1)
    assert [node.id for node in cluster.group("a").nodes] == [0, 2]
    assert "# one line each" in after


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda text: with_node(text, PATH, "a", NEW | {"port": 11_000}), "it is remoting of node 0"),
        (lambda text: with_node(text, PATH, "a", NEW | {"id": 1}), "2 tables have it"),
        (lambda text: without_node(text, PATH, "a", 0), "the group has the nodes 1"),
    ],
    ids=["port", "id", "master"],
)
def test_a_change_that_makes_no_cluster_is_refused(text, change, why):
    with pytest.raises(BadCluster, match=why):
        change(text)
