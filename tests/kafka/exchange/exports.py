"""Stores that are exported, what Kafka should have of them by the words of docs/kafka-exchange.md, and commands."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.samples import Row
from tests.spark.stores import SEGMENT, MadeStore
from towline.cli.main import run
from towline.kafka.exchange.export import ExportResult, export
from towline.kafka.exchange.export_choice import source_of
from towline.kafka.exchange.export_partition import Exported, PartitionWork, write_partition
from towline.kafka.exchange.export_words import Asked
from towline.spark.stores import StoreFacts

Outcome = tuple[int, dict[str, Any]]
QUEUES = 3


def sample(root: Path, count: int = 400, topic: str = "orders", segment_size: int = SEGMENT) -> MadeStore:
    """A stopped store with `count` messages of a topic of three queues, over several segments."""
    made = MadeStore(root, segment_size)
    made.store.config.mkdir()
    for number in range(count):
        keys = None if number % 5 == 0 else f"k{number} all"
        more = {"WAIT": "true"} | ({"city": "Zürich", "n": str(number)} if number % 4 == 0 else {})
        made.put(topic, number % QUEUES, b"%d " % number * (number % 150), tags="red", keys=keys, **more)
    return made.dispatch().safe()


def wanted(made: MadeStore, topic: str, queue_id: int) -> list[Row]:
    """Of messages born here: KEYS is the key, all else but WAIT a header."""
    rows = [row for row in made.rows if (row["topic"], row["queueId"]) == (topic, queue_id)]
    found: list[Row] = []
    for row in rows:
        key = None if row["keys"] is None else row["keys"].encode()
        headers: list[tuple[str, bytes | None]] = [
            (name, value.encode()) for name, value in row["properties"].items() if name not in ("KEYS", "WAIT")
        ]
        ms = round(row["bornTimestamp"].timestamp() * 1000)
        found.append((row["queueOffset"], ms, key, row["body"], headers))
    return found


def one_by_one(
    facts: StoreFacts, works: Sequence[PartitionWork], progress: Callable[[int], None]
) -> Iterator[tuple[PartitionWork, Exported]]:
    for work in works:
        yield work, write_partition(facts, work, progress)


def exported(made: MadeStore, out: Path, **asked: Any) -> ExportResult:
    """What `towline kafka export` does, in this process. `into` takes the place of `out`."""
    where = {} if "into" in asked else {"out": out}
    choices = Asked(store=made.root, **where, **asked).choices()
    return export(choices, source_of(choices), one_by_one, lambda _: None)


def command(capsys: pytest.CaptureFixture[str], *words: object) -> Outcome:
    """`towline kafka export WORDS --json`: its status, and what it printed."""
    capsys.readouterr()
    status = run(["kafka", "export", *map(str, words), "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return status, found
