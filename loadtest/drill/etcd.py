"""A real etcd for a drill: one member, in the foreground of nobody, ended with the drill."""

import ctypes
import os
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from .errors import DrillImpossible
from .network import free_port
from .nodes import Held
from .waiting import await_

START_MAX_S: Final = 30.0
_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG
_LIBRARY: Final = ctypes.CDLL(None)


class EtcdServer:
    """`port` for clients; it listens on `host`."""

    def __init__(self, root: Path, host: str, held: Held) -> None:
        if shutil.which("etcd") is None:
            raise DrillImpossible("--etcd", "there is no etcd (Debian: etcd-server)")
        self._root, self._host, self._held = root, host, held
        self.port, self._peer = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self._peer}"
        command = ["etcd", "--data-dir", str(self._root / "data"), "--name", "drill", "--logger", "zap"]
        command += ["--listen-client-urls", f"http://{self._host}:{self.port}", "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", f"drill={peer}"]
        with (self._root / "log").open("ab") as log, self._held():
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_tied
            )
        await_(lambda: _healthy(client), START_MAX_S, "etcd serves")

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None


def _tied() -> None:
    """In the child: it dies with whoever started it."""
    _LIBRARY.prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() == 1:
        os._exit(1)


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
