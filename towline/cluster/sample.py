"""Makes the sample that `towline cluster init` writes: every key once, with its meaning, and ports that are free."""

import socket
from collections.abc import Callable, Iterator
from string import ascii_lowercase
from typing import Final

from towline.route.file import LOOPBACK
from towline.route.nodes import PORTS

FIRST_PORT: Final = 11_000
STEP: Final = 20  # between two nodes: wider than the ports of one
assert max(PORTS.values()) < STEP

_HEAD: Final = """\
# A Towline cluster: groups of nodes. A group holds one log: its master writes it, its slaves have copies.
#   towline cluster up -f FILE        start what does not run       towline cluster status -f FILE    look at it
#   towline cluster down -f FILE      stop it                       towline cluster units -f FILE     several machines

name = "{name}"

# The members of an etcd: it elects another master where one is lost. Without it `towline promote` does, by hand.
# etcd = ["http://127.0.0.1:2379"]

# Settings of every node; `towline settings keys` lists them all. A group and a node may have some of their own.
[settings]
flush_disk_type = "ASYNC_FLUSH"  # SYNC_FLUSH: a put is acknowledged when it is on the disk
# keys_dir = "keys"  # a ring of `towline keys new`: TCP takes its keys alone, encrypted. Beyond loopback it has to be
# tls_server_cert_path = "node.crt"  # for clients without a key file of the ring, such as RocketMQ's, of which a
# tls_server_key_path = "node.key"   # certificate for the host is wanted
"""
_GROUP: Final = """
[[group]]
name = "{name}"
master = 0  # the node that starts as master; who is master later, the nodes agree on
[group.settings]
broker_role = "{role}"  # SYNC_MASTER: a put is acknowledged when `in_sync_replicas` nodes have it (2)
# min_in_sync_replicas = 2  # refuse puts while fewer are in sync: of two nodes, the other can then be promoted by hand
"""
_NODE: Final = """
[[group.node]]
id = {id}
host = "{host}"  # where the other nodes and the clients reach it
port = {port}  # of clients; {ha} is for the other nodes
store = "{store}"  # relative to this file
"""
_MORE: Final = """\
# listen = "0.0.0.0"  # the address it binds, where that is not `host`
# runtime = "/run/towline"  # its XDG_RUNTIME_DIR, where that is not this shell's: shared memory, 0700
# settings = { flush_disk_type = "SYNC_FLUSH" }
"""


def sample(groups: int, slaves: int, name: str, free: Callable[[int], bool]) -> str:
    """The text of a cluster file. `free` says whether a port is free. Raises ValueError when too few are."""
    ports = free_bases(free)
    text = _HEAD.format(name=name)
    for number in range(groups):
        group = group_name(number)
        text += _GROUP.format(name=group, role="SYNC_MASTER" if slaves else "ASYNC_MASTER")
        for node in range(slaves + 1):
            port = next(ports)
            text += _NODE.format(
                id=node,
                host=LOOPBACK,
                port=port,
                ha=port + PORTS["ha_listen_port"],
                store=f"stores/{group}-{node}",
            )
            text += _MORE if number == node == 0 else ""
    return text


def group_name(number: int) -> str:
    """a, b, ... z, then g26, g27, ..."""
    return ascii_lowercase[number] if number < len(ascii_lowercase) else f"g{number}"


def free_bases(free: Callable[[int], bool]) -> Iterator[int]:
    """Values of `port` whose ports are all free. Raises ValueError at the end of the ports."""
    for base in range(FIRST_PORT, 65_536 - STEP, STEP):
        if all(free(base + above) for above in PORTS.values()):
            yield base
    raise ValueError("no ports are free")


def is_free(port: int) -> bool:
    """On loopback, now."""
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
