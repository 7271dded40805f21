"""`python -m master`, `python -m slave`: the supervisor process of a node, in the foreground until told to stop."""

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from towline.errors import TowlineError
from towline.places import Store
from towline.runtime.logging import configure
from towline.runtime.machine import check_machine
from towline.runtime.positions import Duty
from towline.runtime.process import die_with_parent, set_name
from towline.runtime.settings import Settings, read_settings
from towline.runtime.settings_model import BrokerRole
from towline.runtime.settings_errors import BadSetting
from towline.start import check_siblings

from .duties import MASTER, SLAVE
from .failure import facts_of
from .supervisor import Supervisor

ROLES: Final = {"master": MASTER, "slave": SLAVE}


def run_node(role: str, arguments: Sequence[str]) -> int:
    """Run a node until SIGTERM or SIGINT. Exit status 0 when it stopped with a clean store, else 1."""
    asked = _parse(role, arguments)
    if asked.die_with_parent:
        die_with_parent(asked.die_with_parent)
    set_name(f"towline:{role}")
    try:
        supervisor = _start(role, asked)
    except TowlineError as error:
        _tell(asked.ready_fd, facts_of(error))
        sys.stderr.write(f"{role}: {error}\n")
        return 1
    _tell(asked.ready_fd, {"ready": True, "pid": os.getpid()})
    supervisor.run()
    return 0 if supervisor.stop() else 1


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
    if is_slave and settings.ha_master_address is None:
        raise BadSetting("ha_master_address", "", "flags", "a slave needs its master's host:port")
    return settings


def _start(role: str, asked: argparse.Namespace) -> Supervisor:
    check_machine()
    check_siblings()
    store = Store(asked.store.resolve())
    settings = settings_of(role, store.root, asked.config, dict(asked.set))
    log = configure(Duty.SUPERVISE.label, asked.log_file)
    duties = tuple(duty for duty in ROLES[role] if duty.label not in asked.without)
    supervisor = Supervisor(role, duties, store, settings, log, asked.log_file)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, supervisor.request_stop)
    supervisor.start()
    return supervisor


def _parse(role: str, arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m {role}", description=f"the supervisor process of a {role}")
    labels = [duty.label for duty in ROLES[role]]
    parser.add_argument("--store", type=Path, required=True, help="store directory")
    parser.add_argument("--config", type=Path, help="TOML file of settings, or a real broker.conf")
    parser.add_argument("--set", type=_setting, action="append", default=[], metavar="KEY=VALUE", help="a setting")
    parser.add_argument("--without", choices=labels, action="append", default=[], help="a duty started by hand")
    parser.add_argument("--log-file", type=Path, help="where the processes log; standard error without it")
    parser.add_argument("--ready-fd", type=int, help="descriptor that is told when the node serves, or why it does not")
    parser.add_argument("--die-with-parent", type=int, metavar="PID", help="SIGKILL when this parent goes")
    return parser.parse_args(arguments)


def _setting(text: str) -> tuple[str, str]:
    key, mark, value = text.partition("=")
    if not mark or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value.strip()


def _tell(descriptor: int | None, facts: dict[str, Any]) -> None:
    """One line of JSON to whoever waits for it; a starter that has gone meanwhile changes nothing."""
    if descriptor is None:
        return
    try:
        os.write(descriptor, json.dumps(facts).encode() + b"\n")
    except OSError:
        pass
    finally:
        os.close(descriptor)
