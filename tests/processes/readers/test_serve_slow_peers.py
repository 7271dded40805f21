"""Peers of the read process that read late or not at all: what is kept for them, and what that costs others."""

from collections.abc import Callable

import pytest

from tests.processes.serving import Serve, Serving, build, pull_of, serve
from tests.serve.building import SEGMENT, Built
from tests.serve.conftest import Build
from towline.clock import SystemClock
from towline.format.wire.status import GetStatus
from towline.limits import KIB
from towline.link.dealer import Link
from towline.runtime.positions import Counter
from towline.serve.service import PAUSED_MAX_MS

__all__ = ["build", "serve"]  # the fixtures


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> Callable[[Serving], Link]:
    """Connects a peer at which ZeroMQ stops reading after a few answers until they are received, as at none of ours."""

    def connect(serving: Serving) -> Link:
        with monkeypatch.context() as patch:
            patch.setattr("towline.link.context.RECEIVED_MAX", 8)
            patch.setattr("towline.link.context.HEARTBEAT_MS", 0)
            return serving.connect()

    return connect


def is_lost(link: Link) -> bool:
    """ZeroMQ tells of it when everything that came before was received."""
    link.receive()
    return link.lost


class TestSlowPeers:
    COUNT = 400

    @pytest.fixture
    def built(self, build: Build) -> Built:
        built = build()
        for _ in range(6):
            built.append(body=b"y" * 10_000)
        built.dispatch()
        return built

    def ask_much(self, serving: Serving, link: Link) -> None:
        """Until answers wait in the process because their peer takes no more."""
        sent = 0

        def send() -> bool:
            nonlocal sent
            while sent < self.COUNT and link.send([pull_of(sent)]):
                sent += 1
            return sent == self.COUNT and bool(serving.agent._paused)

        serving.until(send, "a full queue")
        assert serving.agent.sleep_ms() <= 5

    def test_one_that_reads_late_gets_every_answer(self, built: Built, serve: Serve, slowly):
        serving = serve(built)
        slow = slowly(serving)
        self.ask_much(serving, slow)
        got = set()
        while len(got) < self.COUNT:
            built.clock.ms += 5
            head, parts = serving.answer(slow)
            assert bytes(parts[2]) == built.bytes_of(list(built.records))
            got.add(head[3])
        assert got == set(range(self.COUNT))
        assert not serving.agent._paused

    def test_one_that_reads_nothing_is_cut_off(self, built: Built, serve: Serve, slowly):
        serving = serve(built)
        slow = slowly(serving)
        self.ask_much(serving, slow)
        built.clock.ms += PAUSED_MAX_MS
        serving.until(lambda: not serving.agent._paused, "the end of patience")
        serving.until(lambda: is_lost(slow), "the end of its connection")
        serving.pull()
        assert serving.status() == (GetStatus.FOUND, 6)


class TestCopiedAnswers:
    """Of a queue among others: 240 KB each, of 8 records, as many as a file of the queue has."""

    SIZE_MAX = 1_000 * KIB

    @pytest.fixture
    def built(self, build: Build, monkeypatch: pytest.MonkeyPatch) -> Built:
        monkeypatch.setattr("towline.serve.outbound_buffer.PEER_MAX", self.SIZE_MAX)
        built = build(segment=16 * SEGMENT)
        for _ in range(10):
            built.append("t", 0, b"y" * 30_000)
            built.append("t", 1, b"y" * 30_000)
        built.dispatch()
        return built

    ASKED = 20  # more than ZeroMQ, the connection and the bound take together

    def fill_up(self, serving: Serving, link: Link) -> int:
        """Until answers wait for their peer to read; the most bytes that were kept for it meanwhile."""
        for number in range(self.ASKED):
            assert link.send([pull_of(number)])
        most = 0

        def asked() -> bool:
            nonlocal most
            most = max(most, serving.agent._outbound.total)
            return serving.agent._line.counter(Counter.BATCHES) + len(serving.agent._paused) >= self.ASKED

        serving.until(asked, "answers that wait")
        return most

    def test_cost_a_bounded_memory_until_they_are_read(self, built: Built, serve: Serve, slowly, monkeypatch):
        monkeypatch.setattr("towline.serve.service.PAUSED_MAX_MS", 600_000)
        built.clock = SystemClock()  # type: ignore[assignment]
        serving = serve(built)
        slow = slowly(serving)
        assert 0 < self.fill_up(serving, slow) < self.SIZE_MAX + 250_000
        got = set()
        while len(got) < self.ASKED:
            head, parts = serving.answer(slow)
            assert len(parts[2]) > 240_000
            got.add(head[3])
        del parts
        serving.until(lambda: not serving.agent._outbound.total, "the memory is free")

    def test_of_one_that_reads_nothing_keep_nobody_else_waiting(self, built: Built, serve: Serve, slowly):
        serving = serve(built)
        self.fill_up(serving, slowly(serving))
        for number in range(5):
            serving.pull(request_id=number)
            assert serving.status() == (GetStatus.FOUND, 8)
