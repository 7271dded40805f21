"""The units of docs/systemd: as systemd reads them, and their command lines as it would run them."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.repo.trees import ROOT
from towline.node.peers.promotion import promote
from towline.places import Store
from towline.runtime.settings_model import GROUPS

from .nodes import SETTINGS
from .waiting import Watch, await_

UNITS: Final = {"master": "towline-master.service", "slave": "towline-slave@.service"}
COMMAND, STORES = "/opt/towline/bin/towline", "/var/lib"
WATCHDOG_S: Final = 2.0
WAIT_S: Final = 60.0
COMPILING: Final = "compiling for this processor"


def keys(role: str) -> dict[str, str]:
    """The [Service] section, for number 1."""
    text = (ROOT / "docs" / "systemd" / UNITS[role]).read_text(encoding="utf-8").replace("%i", "1")
    section = text[text.index("[Service]") : text.index("[Install]")]
    return dict(line.split("=", 1) for line in section.splitlines()[1:] if line)


class Manager:
    """In the place of systemd: starts the command of a unit, and listens."""

    def __init__(self, role: str, root: Path, runtime: Path, watchdog_s: float) -> None:
        unit = keys(role)
        self.store = Store((root / Path(unit["StateDirectory"])).resolve())
        self.log = root / "stderr"
        self.statuses: list[str] = []
        self.signs = 0  # of life
        self.ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.ear.bind(str(runtime / "notify"))
        towline = str(Path(sys.executable).with_name("towline"))
        line = unit["ExecStart"].replace(COMMAND, towline).replace(STORES, str(root))
        given = dict(word.split("=", 1) for word in shlex.split(unit["Environment"]))
        given |= {f"TOWLINE_{key.upper()}": str(value) for key, value in SETTINGS.items()}
        given |= {"XDG_RUNTIME_DIR": str(runtime), "TOWLINE_LOG_FORMAT": "json"}
        given |= {"NOTIFY_SOCKET": str(runtime / "notify"), "WATCHDOG_USEC": str(int(watchdog_s * 1e6))}
        if role == "slave":
            given["TOWLINE_HA_MASTER_ADDRESS"] = "127.0.0.1:1"  # nobody is there, and it serves what it has
        self.store.root.mkdir(parents=True)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["sh", "-c", 'WATCHDOG_PID=$$ exec "$@"', "sh", *shlex.split(line)],
                env=os.environ | given,
                stdin=subprocess.DEVNULL,
                stderr=log,
            )

    def hear(self, seconds: float) -> dict[str, str]:
        """The next datagram; empty when none came."""
        self.ear.settimeout(max(0.001, seconds))
        try:
            said = dict(line.split("=", 1) for line in self.ear.recv(8192).decode().splitlines())
        except TimeoutError:
            return {}
        self.statuses += [said["STATUS"]] if "STATUS" in said else []
        self.signs += "WATCHDOG" in said
        return said

    def await_word(self, word: str) -> None:
        def heard() -> bool:
            assert self.process.poll() is None or word == "STOPPING", self.log.read_text()
            return word in self.hear(WATCHDOG_S)

        await_(heard, WAIT_S, word)

    def await_status(self, text: str) -> None:
        def heard() -> bool:
            self.hear(WATCHDOG_S)
            return text in self.statuses

        await_(heard, WAIT_S, text)

    def await_silence(self) -> None:
        """Until the time is over after which systemd acts."""
        last = time.monotonic()
        end = last + WAIT_S
        while (left := last + WATCHDOG_S - time.monotonic()) > 0:
            assert time.monotonic() < end, "signs of life come and come"
            if "WATCHDOG" in self.hear(left):
                last = time.monotonic()

    @property
    def facts(self) -> dict[str, Any]:
        return json.loads(self.store.node.read_text())

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.await_word("STOPPING")
        return self.process.wait(WAIT_S)


@contextmanager
def running(role: str, root: Path, *, watchdog_s: float = WATCHDOG_S) -> Iterator[Manager]:
    """Whatever becomes of the block, nothing runs on."""
    runtime = Path(tempfile.mkdtemp(prefix="towline-", dir="/dev/shm"))
    manager = Manager(role, root, runtime, watchdog_s)
    try:
        manager.await_word("READY")
        yield manager
    finally:
        watch = Watch(manager.facts["processes"].values() if manager.store.node.exists() else ())
        manager.process.kill()
        manager.process.wait()
        manager.ear.close()
        watch.await_gone(WAIT_S)
        shutil.rmtree(runtime)


def test_systemd_restarts_a_master_of_which_a_process_stands_still(tmp_path: Path) -> None:
    with running("master", tmp_path) as manager:
        assert manager.facts["processes"].keys() >= {"put", "flush", "reput", "serve"}, "it serves when it says so"
        assert manager.statuses[-1] == f"serves as a master in epoch {manager.facts['epoch']}"
        manager.await_word("WATCHDOG")
        manager.await_word("WATCHDOG")
        reput = manager.facts["processes"]["reput"]
        os.kill(reput, signal.SIGSTOP)
        manager.await_silence()
        assert manager.statuses[-1] == "reput stands still in RUNNING"
        os.kill(reput, signal.SIGCONT)
        manager.await_word("WATCHDOG")
        environment = Path(f"/proc/{reput}/environ").read_bytes()
        assert b"NOTIFY_SOCKET" not in environment
        assert manager.stop() == 0
    assert manager.statuses[-1] == "stops"
    lines = [line for line in manager.log.read_text().splitlines() if not line.startswith(COMPILING)]
    events = [json.loads(line) for line in lines]
    assert len({event["process"] for event in events}) > 1
    assert all({"time", "level", "pid", "logger", "message"} <= event.keys() for event in events)


def test_the_unit_of_a_slave_starts_one_of_its_number(tmp_path: Path) -> None:
    with running("slave", tmp_path, watchdog_s=0.4) as manager:  # a sign of life each 100 ms
        assert "receive" in manager.facts["processes"]
        settings = json.loads(manager.store.settings.read_text())
        assert (settings["broker_id"], settings["broker_role"]) == (1, "SLAVE")
        with ThreadPoolExecutor(1) as pool:
            promoted = pool.submit(promote, manager.store.root, accept_loss=True, timeout_s=WAIT_S)
            manager.await_status("was ordered to promote")
            before = manager.signs
            manager.await_status(f"serves as a master in epoch {promoted.result()['epoch']}")
        assert manager.signs > before, "who changes the role of its node is alive"
        assert manager.stop() == 0


@pytest.mark.parametrize("role", UNITS)
def test_a_unit_names_settings_that_there_are(role: str) -> None:
    text = (ROOT / "docs" / "systemd" / UNITS[role]).read_text(encoding="utf-8")
    known = {f"TOWLINE_{key.upper()}" for group in GROUPS for key in group.model_fields}
    assert set(re.findall(r"TOWLINE_\w+", text)) <= known
    assert keys(role)["Type"] == "notify"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    units = []
    for name in UNITS.values():
        text = (ROOT / "docs" / "systemd" / name).read_text(encoding="utf-8")
        path = tmp_path / name.replace("@.", "@1.")
        path.write_text(text.replace(COMMAND, "/bin/echo").replace("User=towline", "User=root"))
        units.append(str(path))
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (0, "")
