"""A real etcd for tests, one node, on ports of its own. Where the program is missing the test is skipped."""

import contextlib
import os
import shutil
import signal
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.processes.waiting import await_
from towline.link.free_port import free_port as free_port

from .remoting.certificates import Certificate
from .requirements import need


class EtcdServer:
    """With a certificate it serves by TLS alone, to whoever shows one of the same authority."""

    def __init__(self, root: Path, authority: Path | None = None, certificate: Certificate | None = None) -> None:
        self.root, self._authority, self._certificate = root, authority, certificate
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{free_port()}"
        self._peer = f"http://127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = ["etcd", "--data-dir", str(self.root / "data"), "--name", "test", "--logger", "zap"]
        command += ["--listen-client-urls", self.url, "--advertise-client-urls", self.url]
        command += ["--listen-peer-urls", self._peer, "--initial-advertise-peer-urls", self._peer]
        command += ["--initial-cluster", f"test={self._peer}"]
        if self._certificate is not None:
            command += ["--cert-file", str(self._certificate.certificate), "--key-file", str(self._certificate.key)]
            command += ["--client-cert-auth", "--trusted-ca-file", str(self._authority)]
        with (self.root / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        await_(self._is_healthy, 20.0, "etcd serves")

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait(10)
            self._process = None

    def pause(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)  # it may have been at work on another core

    def go_on(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def _is_healthy(self) -> bool:
        context = None
        if self._certificate is not None:
            context = ssl.create_default_context(cafile=self._authority)
            context.load_cert_chain(self._certificate.certificate, self._certificate.key)
        url = f"{self.url}/health"
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=1, context=context) as answer:
            return bool(answer.status == 200)
        return False


def running(root: Path, authority: Path | None = None, certificate: Certificate | None = None) -> Iterator[EtcdServer]:
    """For a fixture."""
    if shutil.which("etcd") is None:
        need({"etcd": "there is no etcd (Debian: etcd-server)"})
    root.mkdir(exist_ok=True)
    server = EtcdServer(root, authority, certificate)
    try:
        server.start()
        yield server
    finally:
        server.kill()
