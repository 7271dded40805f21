"""A real Java member of a group, which sends when it is told to."""

import subprocess
import threading
from collections import Counter
from tempfile import TemporaryDirectory
from typing import Self

import pytest

from tests.processes.waiting import await_

from .java_clients import command

STARTED_S = 120.0


class JavaMember:
    """`consumed` counts bodies; `queues` are those that a message came from."""

    def __init__(self, version: str, address: str, topic: str, group: str, config: pytest.Config) -> None:
        self._home = TemporaryDirectory()
        words = [*command("Member", version, self._home.name, config), address, topic, group]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.consumed: Counter[str] = Counter()
        self.tags: set[str] = set()
        self.queues: set[int] = set()
        self._said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            await_(lambda: "started" in self._said or self._process.poll() is not None, STARTED_S, "the member starts")
            assert "started" in self._said, self._said
        except BaseException:
            self.close()
            raise

    def request(self, topic: str, text: str) -> str:
        """The reply to a message with this text."""
        self._order(f"request {topic} {text}")

        def replies() -> list[str]:
            return [line.removeprefix("reply ") for line in self._said if line.startswith("reply ")]

        return await_(replies, STARTED_S, "the Java requester has a reply")[-1]

    def send(self, count: int) -> None:
        """Returns when all were acknowledged."""
        self._order(f"send {count}")
        await_(lambda: f"sent {count}" in self._said, STARTED_S, "the Java producer sends")

    def _order(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "consumed":
                queue, _, told = rest.partition(" ")
                body, _, tag = told.rpartition(" ")
                self.queues.add(int(queue))
                self.tags.add(tag)
                self.consumed[body] += 1
            else:
                self._said.append(line.strip())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STARTED_S)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._home.cleanup()
