"""A real broker of RocketMQ, first as a slave of a node, then as a master of its own; its files stay between starts."""

import os
import signal
from pathlib import Path
from typing import Any, Final

from peers import java_peer, rocketmq
from peers.jars import JavaMissing
from peers.server import HOST, Missing, Process, free_port
from tests.processes.nodes import QUEUE_FILE, SEGMENT
from tests.processes.waiting import Watch, read_saved
from tests.requirements import need
from towline.format.files.topics import loads_fastjson

VERSIONS: Final = ("4.9.7", "5.5.0")  # the repositories hold no broker of 4.9.8
NEWEST: Final = "5.5.0"
HEAP: Final = "512m"
STOP_S: Final = 60.0
SUCCESS: Final = "boot success"
LOGGING: Final = '<configuration><root level="OFF"/></configuration>\n'
# docs/migration.md has these lines too, with ports and paths of its own.
CONFIG: Final = """\
brokerClusterName=DefaultCluster
brokerName=towline
brokerId={number}
brokerRole={role}
namesrvAddr={names}
brokerIP1={host}
listenPort={port}
haListenPort={ha}
storePathRootDir={store}
storePathCommitLog={store}/commitlog
mappedFileSizeCommitLog={segment}
mappedFileSizeConsumeQueue={queue_file}
"""
# A busy machine is not what is tested; the messages of the store are as old as the test.
PATIENT: Final = "waitTimeMillsInSendQueue=60000\nosPageCacheBusyTimeOutMills=60000\ndiskMaxUsedSpaceRatio=99\n"


class Broker:
    """One that is started with `follow` or `lead`, killed or stopped, and started again."""

    def __init__(self, root: Path, version: str, more: str = "", segment: int = SEGMENT) -> None:
        """`more`: lines of its configuration."""
        self.version, self._more, self._segment = version, more, segment
        self.home, self.store = root / "broker", root / "broker" / "store"
        self.port = rocketmq.broker_port()
        # A broker of 4.9 listens one above its port, whatever haListenPort says.
        self._root, self.ha_port = root, free_port() if version == NEWEST else self.port + 1
        self._process: Process | None = None
        (self.home / "conf").mkdir(parents=True)
        for name in ("broker", "namesrv"):  # releases of 4.9 do not start without
            (self.home / "conf" / f"logback_{name}.xml").write_text(LOGGING)

    def follow(self, names: str, number: int = 1) -> None:
        """Starts it as a slave; `names` is where its master is found."""
        self._start("SLAVE", number, names)

    def lead(self, names: str) -> None:
        """Starts it as a master."""
        self._start("ASYNC_MASTER", 0, names)

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process = None

    def stop(self) -> None:
        """A clean end."""
        assert self._process is not None
        pids = self._process.pids()
        watch = Watch(pids)
        os.kill(pids[0], signal.SIGTERM)
        watch.await_gone(STOP_S)
        self.kill()
        assert not (self.store / "abort").exists()

    def end(self) -> None:
        if self._process is not None:
            self.kill()

    def config(self, name: str) -> dict[str, Any]:
        """A file of its `config`, empty while it is not there."""
        text = read_saved(self.store / "config" / name).decode()
        return loads_fastjson(text, name) if text else {}

    def _start(self, role: str, number: int, names: str) -> None:
        config = self._root / "broker.conf"
        facts = {"port": self.port, "ha": self.ha_port, "store": self.store, "host": HOST}
        sizes = {"segment": self._segment, "queue_file": QUEUE_FILE}
        config.write_text(CONFIG.format(role=role, number=number, names=names, **facts, **sizes) + PATIENT + self._more)
        log = self.home / "log"
        before = log.read_text(errors="replace").count(SUCCESS) if log.exists() else 0
        flags = [*rocketmq.FLAGS, f"-Duser.home={self.home}", f"-Drocketmq.home.dir={self.home}"]
        words = ["org.apache.rocketmq.broker.BrokerStartup", "-c", str(config)]
        version = "" if self.version == NEWEST else self.version
        try:
            self._process = Process(
                java_peer.program(rocketmq.SYSTEM, HEAP, *flags, *words, version=version),
                self.home,
                self.port,
                ready=lambda: log.read_text(errors="replace").count(SUCCESS) > before,
            )
        except (JavaMissing, Missing) as error:
            need({getattr(error, "name", "java"): str(error)})
            raise
