"""A real S3 server on this machine: Versity's gateway, from the Go module proxy, over a directory of its own."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.processes.nodes import free_port
from tests.processes.waiting import await_
from tests.requirements import need

MODULE: Final = "github.com/versity/versitygw/cmd/versitygw"
VERSION: Final = "v1.8.0"
BUILD_S: Final = 600.0
START_S: Final = 60.0
KEY, SECRET = "towline-tests", "only-of-these-tests"


def program(cache: Path) -> Path:
    """Built at first use. Where there is no Go, or the module is not to be had, the test ends."""
    made = cache / f"versitygw-{VERSION}"
    if made.exists():
        return made
    if shutil.which("go") is None:
        need({"go": "go is not installed: Debian has it as golang-go"})
    fresh = cache / f"go-{os.getpid()}"
    environment = {"GOBIN": str(fresh), "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": ""}
    words = ["go", "install", "-ldflags=-s -w", f"{MODULE}@{VERSION}"]
    try:
        subprocess.run(
            words, env=os.environ | environment, check=True, timeout=BUILD_S, capture_output=True, text=True, cwd=cache
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        need({"go": f"{' '.join(words)} failed: {str(error.stderr)[-500:]}"})
        raise
    (fresh / "versitygw").replace(made)
    shutil.rmtree(fresh, ignore_errors=True)
    return made


@dataclass(frozen=True)
class Server:
    root: Path  # a bucket is a directory in it, an object a file
    port: int

    @property
    def environment(self) -> dict[str, str]:
        """What a client of it needs."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


@contextmanager
def server(cache: Path, root: Path) -> Iterator[Server]:
    port = free_port()
    buckets, sidecar = root / "buckets", root / "sidecar"
    buckets.mkdir()
    sidecar.mkdir()
    words = ["--quiet", "--port", f"127.0.0.1:{port}", "posix", "--sidecar", str(sidecar), str(buckets)]
    keys = {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
    with (root / "log").open("wb") as log:
        running = subprocess.Popen([program(cache), *words], env=os.environ | keys, stdout=log, stderr=log)
    try:
        await_(lambda: _answers(port), START_S, "the S3 server")
        yield Server(buckets, port)
    finally:
        running.kill()
        running.wait()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), START_S).close()
    except ConnectionRefusedError:
        return False
    return True
