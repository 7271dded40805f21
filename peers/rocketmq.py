"""Apache RocketMQ: a name server and a broker; its own Java clients, with batches where many are on their way.

The name server is a coordination service, as etcd is for others: it is neither measured nor killed with the broker.
"""

import socket
from pathlib import Path
from typing import Final

from . import java_peer
from .plan import Durability, Setup
from .server import HOST, Process, free_port, remove
from .usage import disk_bytes

NAME: Final = "Apache RocketMQ"
SYSTEM: Final = "rocketmq"
NAME_SERVER_HEAP: Final = "128m"
HEAP: Final = "1g"
DIRECT_MAX: Final = "1g"
_OPENED: Final = ("java.nio", "sun.nio.ch", "jdk.internal.ref", "java.lang")
FLAGS: Final = (
    "-XX:+UseG1GC",
    "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:-OmitStackTraceInFastThrow",
    f"-XX:MaxDirectMemorySize={DIRECT_MAX}",
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED),
    *(f"--add-exports=java.base/{name}=ALL-UNNAMED" for name in _OPENED),
)
_FLUSH: Final = {Durability.ASYNC: "ASYNC_FLUSH", Durability.SYNC: "SYNC_FLUSH"}
_SUCCESS: Final = "boot success"
_LOGGING: Final = '<configuration><root level="OFF"/></configuration>\n'
_CONFIG: Final = """\
brokerName=peer
brokerId=0
brokerRole=ASYNC_MASTER
namesrvAddr={host}:{name_server}
brokerIP1={host}
bindAddress={host}
listenPort={port}
haListenPort={ha}
storePathRootDir={store}
storePathCommitLog={store}/commitlog
flushDiskType={flush}
# A machine that does something else meanwhile is not what is measured.
waitTimeMillsInSendQueue=60000
osPageCacheBusyTimeOutMills=60000
# A reader gets as much at once as Kafka gives by default; the default is 32 messages.
maxTransferCountOnMessageInMemory=1024
maxTransferBytesOnMessageInMemory=1048576
"""


def version() -> str:
    return f"Apache RocketMQ {java_peer.version(SYSTEM)}"


def client() -> list[str]:
    return java_peer.client(SYSTEM)


class RocketmqNode(Process):
    """The broker, and the name server that it has for itself."""

    def __init__(self, directory: Path, setup: Setup, more: str = "", version: str = "") -> None:
        """`more`: lines of its configuration; `version`: another than the one that is compared with."""
        places = {name: directory / name for name in ("names", "broker")}
        for place in places.values():
            (place / "conf").mkdir(parents=True)
            for name in ("broker", "namesrv"):  # releases of 4.9 do not start without
                (place / "conf" / f"logback_{name}.xml").write_text(_LOGGING)
        self._root = directory
        self._names = name_server(places["names"], version)
        port = broker_port()
        self.store = places["broker"] / "store"
        config = directory / "broker.conf"
        config.write_text(
            _CONFIG.format(
                host=HOST,
                name_server=self._names.address,
                port=port,
                ha=free_port(),
                store=self.store,
                flush=_FLUSH[setup.durability],
            )
            + more
        )
        flags = [*FLAGS, f"-Duser.home={places['broker']}", f"-Drocketmq.home.dir={places['broker']}"]
        words = ["org.apache.rocketmq.broker.BrokerStartup", "-c", str(config)]
        log = places["broker"] / "log"
        try:
            super().__init__(
                java_peer.program(SYSTEM, HEAP, *flags, *words, version=version),
                places["broker"],
                port,
                sync_delay_ms=setup.sync_delay_ms,
                ready=lambda: _SUCCESS in log.read_text(errors="replace"),
            )
        except BaseException:
            self._names.end()
            raise
        self.address = f"{HOST}:{self._names.address}"

    def disk_bytes(self) -> int:
        return disk_bytes(self.store)

    def end(self) -> None:
        super().end()
        self._names.end()
        remove(self._root)


def start(directory: Path, setup: Setup) -> RocketmqNode:
    return RocketmqNode(directory, setup)


def broker_port() -> int:
    """One for a broker, which takes the port two below, too."""
    while True:
        port = free_port()
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port - 2))
            except OSError:
                continue
            return port


def name_server(directory: Path, version: str) -> Process:
    port = free_port()
    config = directory / "namesrv.conf"
    config.write_text(f"listenPort={port}\nbindAddress={HOST}\n")
    words = [f"-Duser.home={directory}", f"-Drocketmq.home.dir={directory}"]
    words += ["org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(config)]
    program = java_peer.program(SYSTEM, NAME_SERVER_HEAP, "-XX:+UseSerialGC", *words, version=version)
    return Process(program, directory, port)
