"""`python -m towline.master`, `python -m towline.slave`: the supervisor process of a node, until SIGTERM or SIGINT.

This module imports little: the zygote, which takes longest to be ready, is started before settings and stores are.
"""

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from towline.errors import TowlineError
from towline.parent import die_with_parent
from towline.places import Store
from towline.runtime.process import check_machine, set_name

from .duties import MASTER, ROLES, SLAVE
from .service_manager import ServiceManager
from .zygote_client import ZygoteClient

BOOTSTRAP: Final = "towline.node.supervise.bootstrap"
FAILURE: Final = "towline.node.process.failure"
LOGGING: Final = "towline.runtime.logging"


def run_node(role: str, arguments: Sequence[str]) -> int:
    """Run a node until SIGTERM or SIGINT. Exit status 0 when it stopped with a clean store, else 1."""
    asked = _parse(role, arguments)
    if asked.die_with_parent:
        die_with_parent(asked.die_with_parent)
    set_name(f"towline:{role}")
    store = Store(asked.store.resolve())
    loaded = dict.fromkeys((*ROLES[role], *MASTER, *SLAVE))  # its own first; the other role may be its own one day
    told, manager = asked.ready_fd if asked.tell_progress else None, ServiceManager(os.environ)
    compiling = partial(_tell_compiling, told, manager)
    zygote = ZygoteClient(store.root, asked.log_file, [duty.label for duty in loaded], compiling)
    try:
        check_machine()
        zygote.spawn()
        start = import_module(BOOTSTRAP).start  # while the zygote loads
        supervisor = start(role, asked, store, dict(asked.set), zygote, manager)
    except TowlineError as error:
        zygote.end()
        _tell(asked.ready_fd, import_module(FAILURE).facts_of(error))
        manager.status(f"does not start: {error}")
        import_module(LOGGING).complain(role, error)
        return 1
    _tell(asked.ready_fd, {"ready": True, "pid": os.getpid()})
    try:
        supervisor.run()
    except TowlineError as error:
        import_module(LOGGING).complain(role, error)
        supervisor.stop()
        return 1
    return 0 if supervisor.stop() else 1


def _parse(role: str, arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m {role}", description=f"the supervisor process of a {role}")
    labels = [duty.label for duty in ROLES[role]]
    parser.add_argument("--store", type=Path, required=True, help="store directory")
    parser.add_argument("--config", type=Path, help="TOML file of settings, or a real broker.conf")
    parser.add_argument("--set", type=_setting, action="append", default=[], metavar="KEY=VALUE", help="a setting")
    parser.add_argument("--without", choices=labels, action="append", default=[], help="a duty started by hand")
    parser.add_argument("--alone", action="store_true", help="no peer can be master now, though none answers")
    parser.add_argument("--accept-loss", action="store_true", help="what was confirmed here may be cut off")
    parser.add_argument("--log-file", type=Path, help="where the processes log; standard error without it")
    parser.add_argument("--ready-fd", type=int, help="descriptor to write to when the node serves, or why it does not")
    parser.add_argument("--tell-progress", action="store_true", help="write there too how far a first start is")
    parser.add_argument("--die-with-parent", type=int, metavar="PID", help="SIGKILL when this parent goes")
    return parser.parse_args(arguments)


def _setting(text: str) -> tuple[str, str]:
    key, mark, value = text.partition("=")
    if not mark or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value.strip()


def _tell_compiling(descriptor: int | None, manager: ServiceManager, done: int, of: int) -> None:
    """Says how far the compilation is: to the service manager, and to the parent process or on standard error."""
    manager.status(f"compiles for this processor, once for this installation: {done} of {of}")
    if descriptor is None:
        sys.stderr.write(f"compiling for this processor, once for this installation: {done} of {of}\n")
        return
    with contextlib.suppress(OSError):
        os.write(descriptor, json.dumps({"compiling": done, "of": of}).encode() + b"\n")


def _tell(descriptor: int | None, facts: dict[str, Any]) -> None:
    """Writes one line of JSON for the parent process; one that has ended meanwhile changes nothing."""
    if descriptor is None:
        return
    try:
        os.write(descriptor, json.dumps(facts).encode() + b"\n")
    except OSError:
        pass
    finally:
        os.close(descriptor)
