"""The second half of a node's start, imported while its zygote loads: settings, log, signals, the supervisor."""

import argparse
import os
import signal
from pathlib import Path

from towline.errors import BadSetting
from towline.node.process.own_log import log_by
from towline.node.process.service_manager import ServiceManager
from towline.node.process.zygote_client import ZygoteClient
from towline.node.roles.role_commands import accept_loss_once
from towline.places import Store
from towline.runtime.logging import configure
from towline.runtime.positions import Duty
from towline.runtime.settings import Settings, beneath_kept, read_sources
from towline.runtime.settings_model import BrokerRole

from .supervisor import Supervisor


def start(
    role: str,
    asked: argparse.Namespace,
    store: Store,
    changes: dict[str, str],
    zygote: ZygoteClient,
    manager: ServiceManager,
) -> Supervisor:
    """The supervisor of a node whose processes run. Raises what the settings and `Supervisor.start` raise."""
    settings, sources = settings_of(role, store.root, asked.config, changes)
    log = configure(Duty.SUPERVISE.label, asked.log_file)
    log_by(settings)
    without = frozenset(asked.without)
    beneath = beneath_kept(asked.config, store.kept_settings, sources)
    supervisor = Supervisor(
        role, without, store, settings, sources, log, zygote, asked.log_file, manager, asked.alone, beneath=beneath
    )
    if asked.accept_loss:
        accept_loss_once(store)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, supervisor.request_stop)
    supervisor.start()
    return supervisor


def settings_of(
    role: str, store: Path, config: Path | None, changes: dict[str, str]
) -> tuple[Settings, dict[str, str]]:
    """The settings of a node of this role, and their sources. Raises what `read_sources` raises, and BadSetting for
    another role's."""
    given = changes | {"store_path_root_dir": str(store)}
    if role == "slave":
        given = {"broker_role": BrokerRole.SLAVE.value} | given
    settings, sources = read_sources(config, Store(store).kept_settings, given, os.environ)
    is_slave = settings.broker_role is BrokerRole.SLAVE
    if is_slave != (role == "slave"):
        why = f"a {role} cannot have it; leave it out, or start a {'slave' if is_slave else 'master'}"
        raise BadSetting(
            "broker_role", settings.broker_role.value, "flags" if "broker_role" in changes else "file", why
        )
    followed = settings.ha_master_address or settings.rocketmq_master_address or settings.ha_peers
    if is_slave and not followed:
        raise BadSetting("ha_master_address", "", "flags", "a slave needs its master's host:port, or all of ha_peers")
    return settings, sources
