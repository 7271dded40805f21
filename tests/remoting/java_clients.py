"""Real Java clients of both lines, and a real name server and broker for them to compare with."""

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from peers import rocketmq
from peers.jars import JavaMissing, class_path
from peers.plan import Setup
from peers.server import Missing
from tests.interop.releases import POM
from tests.requirements import need

from .other_clients import await_registered

VERSIONS: Final = ("4.9.8", "5.5.0")
SOURCES: Final = sorted((Path(__file__).parent / "java").glob("*.java"))
RUN_S: Final = 240.0
# What the node of these tests is set to, in the words of a broker.
CONFIG: Final = """\
recallMessageEnable=true
transactionTimeOut=500
transactionCheckInterval=500
timerMaxDelaySec=60
enablePropertyFilter=true
"""


def start_broker(directory: Path, version: str = "") -> Iterator[rocketmq.RocketmqNode]:
    """A name server and a broker of RocketMQ 5.5, or of another version."""
    try:
        made = rocketmq.RocketmqNode(directory, Setup(), CONFIG, version)
    except (JavaMissing, Missing) as error:
        need({getattr(error, "name", "java"): str(error)})
        raise
    try:
        await_registered(made.address)
        yield made
    finally:
        made.end()


def classes_of(module: str, version: str, sources: Sequence[Path], config: pytest.Config) -> str:
    """The class path of programs with a module of RocketMQ. Where there is no Java the test ends."""
    choices = [f"-Drocketmq.module={module}", f"-Drocketmq.version={version}"]
    try:
        return class_path(POM, choices, sources, config.cache.mkdir("remoting"))
    except JavaMissing as error:
        need({error.name: str(error)})
        raise


def command(program: str, version: str, home: str, config: pytest.Config) -> list[str]:
    """What runs a program, but for its words. `home` is for offsets of broadcasting consumers, and logs."""
    classes = classes_of("rocketmq-client", version, SOURCES, config)
    flags = ["-Drocketmq.client.logLevel=ERROR", f"-Duser.home={home}"]
    flags += ["-Drocketmq.client.rebalance.waitInterval=1000"]
    return ["java", *flags, "-cp", classes, f"towline.remoting.{program}"]


def run(
    program: str, version: str, address: str, topic: str, config: pytest.Config, flags: Sequence[str] = ()
) -> list[str]:
    """What a program prints, with TOPIC for the name of its topic. `flags` are Java's."""
    with TemporaryDirectory() as home:
        java, *words = [*command(program, version, home, config), address, topic]
        words = [java, *flags, *words]
        done = subprocess.run(words, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout.replace(topic, "TOPIC").splitlines()
