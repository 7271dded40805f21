"""One store, handed to and fro between Towline and the real store; either is closed or killed in the middle of it."""

import os
import random

import pytest

from .checks import check_read, divided, mixed_specs, mixture
from .jvm import RealStore
from .model import Mixture, Sent, check_all
from .releases import Release
from .test_from_real import topics_file
from .towlines import REAL_SETTINGS, TowlineStore

SEED = int(os.environ.get("TOWLINE_SEED", "20"))


class Relay:
    """`promised` was acknowledged; `open` was under way when somebody was killed, until the next one looked."""

    def __init__(self, release: Release, towline: TowlineStore, start_jvm, seed: int) -> None:
        self.release, self.towline, self.start_jvm = release, towline, start_jvm
        self.messages: Mixture = mixture(seed, release)
        self.promised: list[Sent] = []
        self.open: list[Sent] = []

    def settle(self, store: RealStore | TowlineStore, *, by_key: bool) -> None:
        """Everything promised is there; what was under way may be, and counts from now on."""
        if by_key:
            found = check_read(store, self.promised, self.open)
        else:
            check_all(self.promised, found := store.read(), unpromised=self.open)
        keys = {each["properties"]["UNIQ_KEY"] for each in found}
        self.promised += [message for message in self.open if message.key in keys]
        self.open = []

    def run_towline(self, seed: int, *, killed: bool, by_key: bool) -> None:
        towline = self.towline
        towline.start()
        self.settle(towline, by_key=by_key)
        more = self.messages.take(150)
        towline.send(more)
        self.promised += more
        if not killed:
            towline.stop()
            return
        self.open = self.messages.take(150)
        for message in self.open:
            towline.send_async(message)
        towline.kill(seed)

    def run_real(self, *, killed: bool, by_key: bool) -> None:
        jvm = self.start_jvm(self.release)
        real = RealStore(jvm, self.towline.root, messageIndexSafe=True, **REAL_SETTINGS)
        real.open()
        self.settle(real, by_key=by_key)
        sent, specs = mixed_specs(self.messages, 200, 20)
        if killed:
            promised, self.open = divided(sent, specs, jvm.stream_until_killed(specs, len(specs) // 2))
            self.promised += promised
        else:
            real.put(specs)
            self.promised += sent
            real.close()
        jvm.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("rounds", [pytest.param(4, id="4"), pytest.param(24, id="24", marks=pytest.mark.slow)])
def test_nothing_promised_is_lost_whoever_is_killed(release, towline, start_jvm, rounds):
    chosen = random.Random(SEED)
    relay = Relay(release, towline, start_jvm, SEED)
    topics_file(towline, release)
    for number in range(rounds):
        killed = chosen.random() < 0.7 and number < rounds - 1
        if number % 2:
            relay.run_real(killed=killed, by_key=number % 4 == 1)
        else:
            relay.run_towline(number, killed=killed, by_key=number % 4 == 2)
    assert len(relay.promised) > 150 * rounds
