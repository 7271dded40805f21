"""Apache Kafka: one node that is broker and controller; its own Java client, which makes batches itself."""

import subprocess
import uuid
from base64 import urlsafe_b64encode
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from towline.errors import BenchFailed

from . import java_peer
from .plan import Durability, Setup
from .server import HOST, START_S, Process, free_port
from .usage import disk_bytes

NAME: Final = "Apache Kafka"
SYSTEM: Final = "kafka"
HEAP: Final = "1g"  # as its own start script has it
FLAGS: Final = (
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Dorg.apache.logging.log4j.level=INFO",
)
_STARTED: Final = "Kafka Server started"
_CONFIG: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""
_SYNCED: Final = {Durability.ASYNC: "", Durability.SYNC: "log.flush.interval.messages=1\n"}


def version() -> str:
    return f"Apache Kafka {java_peer.version(SYSTEM)}"


def client() -> list[str]:
    return java_peer.client(SYSTEM)


class KafkaNode(Process):
    """Its address is what a client calls its bootstrap server."""

    def __init__(self, directory: Path, setup: Setup) -> None:
        port, controller = free_port(), free_port()
        config, log, self._data = directory / "server.properties", directory / "log", directory / "data"
        places = {"host": HOST, "port": port, "controller": controller, "data": self._data}
        config.write_text(_CONFIG.format(**places) + _SYNCED[setup.durability])
        for name, content in _formatted():
            place = self._data / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        command = java_peer.program(SYSTEM, HEAP, *FLAGS, "kafka.Kafka", str(config))
        super().__init__(
            command,
            directory,
            port,
            sync_delay_ms=setup.sync_delay_ms,
            ready=lambda: _STARTED in log.read_text(errors="replace"),
        )
        self.address = f"{HOST}:{port}"

    def disk_bytes(self) -> int:
        return disk_bytes(self._data)


def start(directory: Path, setup: Setup) -> KafkaNode:
    return KafkaNode(directory, setup)


@cache
def _formatted() -> tuple[tuple[str, bytes], ...]:
    """What a node wants in its directory before its first start: made once, for it takes a JVM's start."""
    with TemporaryDirectory(prefix="towline-kafka-") as name:
        config, data = Path(name) / "server.properties", Path(name) / "data"
        config.write_text(_CONFIG.format(host=HOST, port=free_port(), controller=free_port(), data=data))
        cluster = "c" + urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]  # "-" at its head would be an option
        words = ["kafka.tools.StorageTool", "format", "--cluster-id", cluster, "--config", str(config)]
        command = java_peer.program(SYSTEM, "128m", "-XX:TieredStopAtLevel=1", *words)
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
        if done.returncode:
            raise BenchFailed(f"Kafka cannot format its storage: {done.stdout[-400:]}{done.stderr[-400:]}")
        files = sorted(path for path in data.rglob("*") if path.is_file())
        return tuple((str(path.relative_to(data)), path.read_bytes()) for path in files)
