"""The same questions to either store, and messages put by the real one."""

from typing import Any

from .jvm import RealStore
from .model import RETRY_V2, TOPICS, Mixture, Sent, check_all, check_index, index_pairs
from .releases import Release
from .towlines import TowlineStore


def mixture(seed: int, release: Release) -> Mixture:
    """Of every kind that the release can read."""
    return Mixture(seed, topics=(*TOPICS, RETRY_V2) if release.knows_v2 else TOPICS)


def mixed_specs(messages: Mixture, singles: int, batches: int) -> tuple[list[Sent], list[dict[str, Any]]]:
    """Messages one by one and in batches, in turn: what they are, and the requests for them."""
    sent, specs = [], []
    for number in range(singles):
        sent.append(messages.one())
        specs.append(sent[-1].spec())
        if number % max(1, singles // batches) == 0:
            batch = messages.batch(number % 7 + 1)
            sent += batch
            specs.append(batch[0].spec(batch=batch))
    return sent, specs


def divided(sent: list[Sent], specs: list[dict[str, Any]], acked: int) -> tuple[list[Sent], list[Sent]]:
    """The messages of the first `acked` requests, and the others."""
    count = sum(len(spec.get("batch", "1")) for spec in specs[:acked])
    return sent[:count], sent[count:]


def check_read(
    store: RealStore | TowlineStore, sent: list[Sent], unpromised: list[Sent] | None = None
) -> list[dict[str, Any]]:
    """By queue and by key."""
    found = store.read()
    check_all(sent, found, unpromised=unpromised)
    pairs = index_pairs(found)
    check_index(found, pairs, store.query(pairs))
    return found
