"""A remedy for a node of a cluster is what is to be written into the cluster file."""

from pathlib import Path

import pytest

from towline.cli.cluster_remedies import in_cluster_file
from towline.errors import CannotListen, NoFirstSegment, SegmentSizeMismatch, StoreNotWritable, TowlineError

FILE, STORE = Path("/etc/cluster.toml"), Path("/var/a 0")


def taken(setting: str) -> CannotListen:
    return CannotListen("tcp://h:1", 98, "in use", setting=setting)


@pytest.mark.parametrize(
    ("error", "written"),
    [
        (
            CannotListen("tcp://h:1", 98, "in use", setting="ha_listen_port"),
            "`ha_listen_port` or `port` of the node in",
        ),
        (
            CannotListen("tcp://h:1", 98, "in use", setting="name_server_port"),
            "`name_server_port = VALUE` in the settings",
        ),
        (NoFirstSegment("/var", 9, 1), "`mapped_file_size_commit_log = 16777216` in the settings of"),
        (NoFirstSegment("/var", 9, 1), "(`store` of the node in /etc/cluster.toml)"),
        (SegmentSizeMismatch("/var/0", 5, 9), "`mapped_file_size_commit_log = 5` in the settings of"),
        (StoreNotWritable("/var", "no"), "name another one with `store` of the node in /etc/cluster.toml"),
    ],
)
def test_an_option_is_the_key_of_the_file(error: TowlineError, written: str) -> None:
    remedy = in_cluster_file(error.advice, FILE, STORE)
    assert written in remedy
    assert "--set" not in remedy
    assert "--store" not in remedy


def test_a_command_has_the_store_of_the_node() -> None:
    assert in_cluster_file("run `towline store verify`", FILE, STORE) == "run `towline store verify --store '/var/a 0'`"
