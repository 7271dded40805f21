"""The rest of a node's start, imported while its zygote loads: settings, log, signals, the supervisor."""

import argparse
import os
import signal
from pathlib import Path

from towline.errors import BadSetting
from towline.node.process.zygote_client import Nursery
from towline.node.roles.role_commands import allow_loss
from towline.places import Store
from towline.runtime.logging import configure
from towline.runtime.positions import Duty
from towline.runtime.settings import Settings, read_settings
from towline.runtime.settings_model import BrokerRole

from .supervisor import Supervisor


def start(role: str, asked: argparse.Namespace, store: Store, changes: dict[str, str], nursery: Nursery) -> Supervisor:
    """The supervisor of a node whose pieces run. Raises what the settings and `Supervisor.start` raise."""
    settings = settings_of(role, store.root, asked.config, changes)
    log = configure(Duty.SUPERVISE.label, asked.log_file)
    supervisor = Supervisor(role, frozenset(asked.without), store, settings, log, nursery, alone=asked.alone)
    if asked.accept_loss:
        allow_loss(store)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, supervisor.request_stop)
    supervisor.start()
    return supervisor


def settings_of(role: str, store: Path, config: Path | None, changes: dict[str, str]) -> Settings:
    """The settings of a node of this role. Raises what `read_settings` raises, and BadSetting for another role's."""
    given = changes | {"store_path_root_dir": str(store)}
    if role == "slave":
        given = {"broker_role": BrokerRole.SLAVE.value} | given
    settings = read_settings(config, given, os.environ)
    is_slave = settings.broker_role is BrokerRole.SLAVE
    if is_slave != (role == "slave"):
        why = f"a {role} cannot have it; leave it out, or start a {'slave' if is_slave else 'master'}"
        raise BadSetting(
            "broker_role", settings.broker_role.value, "flags" if "broker_role" in changes else "file", why
        )
    if is_slave and settings.ha_master_address is None and not settings.ha_peers:
        raise BadSetting("ha_master_address", "", "flags", "a slave needs its master's host:port, or all of ha_peers")
    return settings
