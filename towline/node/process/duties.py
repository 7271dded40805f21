"""The table of duties: the module that does each, the duties of a role, the order of starting and stopping."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final, cast

from towline.runtime.positions import Duty

if TYPE_CHECKING:  # the supervisor names duties before it imports what it takes to do them
    from pathlib import Path

    from towline.runtime.agent import Agent
    from towline.runtime.settings import Settings

    from .context import Node

MODULES: Final = {
    Duty.PUT: "towline.master.put.service",
    Duty.RECEIVE: "towline.slave.receive",
    Duty.ALLOCATE: "towline.allocate.service",
    Duty.FLUSH: "towline.flush.service",
    Duty.REPUT: "towline.reput.service",
    Duty.SERVE: "towline.serve.service",
    Duty.SEND: "towline.ha.sender.send",
    Duty.FOLLOW: "towline.slave.follow",
    Duty.SCHEDULE: "towline.master.schedule.service",
    Duty.LEASE: "towline.ha.leader.lease",
    Duty.REMOTING: "towline.remoting.service",
    Duty.METRICS: "towline.metrics.service",
    Duty.ROCKETMQ_HA: "towline.ha.rocketmq.service",
}

# Each runs once in a start, before any other process: `(store, log file) -> exit status`.
ONE_SHOTS: Final = {
    Duty.RECOVER: ("towline.node.supervise.recover", "recover_node"),
    Duty.AGREE: ("towline.ha.leader.agree", "agree_node"),
}

# In the order of starting, stopped in the order of `STOP_ORDER`. First those that clients wait for, before them whoever
# has to ask an etcd: flush and allocate may begin with much work, and take the CPUs for it.
MASTER: Final = (Duty.PUT, Duty.SERVE, Duty.SEND, Duty.REPUT, Duty.FLUSH, Duty.ALLOCATE, Duty.SCHEDULE)
SLAVE: Final = (Duty.RECEIVE, Duty.SERVE, Duty.FOLLOW, Duty.REPUT, Duty.FLUSH, Duty.ALLOCATE)
ROLES: Final = {"master": MASTER, "slave": SLAVE}
WITH_ETCD: Final = (Duty.LEASE,)  # in both roles, where leadership is a lease
WITH_REMOTING: Final = (Duty.REMOTING,)  # of a node that has a port for clients
WITH_METRICS: Final = (Duty.METRICS,)  # of a node that has a port for Prometheus; it says how far the start is

WITH_ROCKETMQ_HA: Final = (Duty.ROCKETMQ_HA,)  # of a master that has a port for slaves of RocketMQ
WITH_A_PORT: Final = (*WITH_REMOTING, *WITH_METRICS, *WITH_ROCKETMQ_HA)


def duties_of(role: str, settings: "Settings", without: frozenset[str]) -> tuple[Duty, ...]:
    """What a node of this role does with processes of its own."""
    duties = (WITH_ETCD if settings.etcd_endpoints else ()) + ROLES[role]
    duties += WITH_REMOTING if settings.listen_port else ()
    duties += WITH_ROCKETMQ_HA if role == "master" and settings.rocketmq_ha_port else ()
    duties += WITH_METRICS if settings.metrics_port else ()
    return tuple(duty for duty in duties if duty.label not in without)


# Who puts, then writers; then reput, which needs flush and the ha sender to confirm what it still has to dispatch.
STOP_ORDER: Final = (
    Duty.METRICS,  # from here on the node is not ready
    Duty.REMOTING,
    Duty.SCHEDULE,
    Duty.PUT,
    Duty.RECEIVE,
    Duty.FOLLOW,
    Duty.REPUT,
    Duty.ROCKETMQ_HA,  # hands on the last bytes too, which flush and send confirm
    Duty.SERVE,
    Duty.SEND,
    Duty.FLUSH,
    Duty.ALLOCATE,
    Duty.LEASE,  # then another node may have the leadership
)
assert set(STOP_ORDER) == set(MODULES) == {*MASTER, *SLAVE, *WITH_ETCD, *WITH_A_PORT}


def one_shot(duty: Duty) -> "Callable[[Path, Path | None], int]":
    module, name = ONE_SHOTS[duty]
    return cast("Callable[[Path, Path | None], int]", getattr(import_module(module), name))


def builder(duty: Duty) -> "Callable[[Node], Agent]":
    """`build(node) -> Agent` of the duty's module; importing it is what a zygote does before it forks."""
    return cast("Callable[[Node], Agent]", import_module(MODULES[duty]).build)
