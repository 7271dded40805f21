"""Apache's own proxy for gRPC clients, in front of a name server and its brokers."""

import json
from pathlib import Path
from typing import Final

import pytest

from peers.server import Process, free_port

from .java_clients import classes_of

VERSION: Final = "5.5.0"
STARTED: Final = "startup successfully"
FLAGS: Final = ("-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def classes_of_proxy(config: pytest.Config) -> str:
    return classes_of("rocketmq-proxy", VERSION, (), config)


class Proxy(Process):
    """A proxy in cluster mode. Its gRPC clients find it at `endpoints`."""

    def __init__(self, directory: Path, names: str, classes: str) -> None:
        """`names`: the address of the name server. The types of topics are not checked: a topic made without one is for
        plain messages alone there."""
        directory.mkdir()
        grpc, remoting = free_port(), free_port()
        settings = {
            "rocketMQClusterName": "DefaultCluster",
            "namesrvAddr": names,
            "localServeAddr": "127.0.0.1",
            "grpcServerPort": grpc,
            "remotingListenPort": remoting,
            "enableTopicMessageTypeCheck": False,
            "transactionHeartbeatPeriodSecond": 1,  # before it a broker knows nobody whom it could ask
            "printThreadPoolStatusInMillis": 60_000,
        }
        file = directory / "rmq-proxy.json"
        file.write_text(json.dumps(settings))
        flags = [*FLAGS, f"-Duser.home={directory}", f"-Drocketmq.home.dir={directory}"]
        words = ["-cp", classes, "org.apache.rocketmq.proxy.ProxyStartup", "-pc", str(file)]
        log = directory / "log"
        super().__init__(
            ["java", *flags, *words], directory, grpc, ready=lambda: STARTED in log.read_text(errors="replace")
        )
        self.endpoints = f"127.0.0.1:{grpc}"
