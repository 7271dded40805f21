"""Statistics against figures that plain Python takes of the messages as they were put."""

from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.spark.stores import MadeStore
from towline.pipeline import stats
from towline.pipeline.counting import COUNTS, DELAY, KEY, MISSED, SIZE, Counting, HeavyHitters
from towline.pipeline.errors import IllegalOption
from towline.spark.planning import plan
from towline.spark.reading import read


@pytest.fixture
def made(tmp_path: Path) -> MadeStore:
    """Nearly twenty minutes of messages, a retry and a dead letter among them."""
    store = MadeStore(tmp_path / "store").fill(1100)
    store.put("%RETRY%readers", keys="k1 all")
    store.put("%DLQ%readers")
    return store.dispatch().safe()


def minute_of(row):
    return int(row["storeTimestamp"].timestamp()) // 60


def counted(made: MadeStore, by: str, keys: bool = True, **options) -> pa.Table:
    """What the tasks hand on, of all of them."""
    counting = Counting(by, keys)
    planned = plan(stats.Options(store=str(made.root), by=by, **options).source(), counting.columns)
    found = [batch for part in planned.partitions for batch in counting(read(part, planned.reading))]
    return pa.Table.from_batches(found, COUNTS)


def rows_of(table: pa.Table, what: str) -> Counter:
    """(topic, queue, minute, value or text) -> n."""
    found: Counter = Counter()
    for row in table.to_pylist():
        if row["what"] == what:
            value = row["text"] if what == KEY else row["value"]
            found[row["topic"], row["queueId"], row["minute"], value] += row["n"]
    return found


class TestCounting:
    """Without a JVM."""

    def test_sizes_and_delays_are_those_of_the_messages_by_minute(self, made):
        table = counted(made, "minute")
        place = [(row["topic"], row["queueId"], minute_of(row)) for row in made.rows]
        assert rows_of(table, SIZE) == Counter((*at, row["size"]) for at, row in zip(place, made.rows, strict=True))
        assert rows_of(table, DELAY) == Counter((*at, 3) for at in place)

    def test_a_coarser_grain_leaves_out_what_it_does_not_tell_apart(self, made):
        assert rows_of(counted(made, "topic"), SIZE) == Counter(
            (row["topic"], None, None, row["size"]) for row in made.rows
        )
        assert {key[:3] for key in rows_of(counted(made, "queue"), SIZE)} == {
            (row["topic"], row["queueId"], None) for row in made.rows
        }

    def test_retried_are_those_that_were_consumed_again(self, made):
        table = counted(made, "topic", keys=False)
        retried = defaultdict(int)
        for row in table.to_pylist():
            retried[row["topic"]] += row["retried"] if row["what"] == SIZE else 0
        expected = Counter(row["topic"] for row in made.rows if row["reconsumeTimes"])
        assert {topic: count for topic, count in retried.items() if count} == expected
        assert not rows_of(table, KEY)

    def test_each_key_of_a_message_counts(self, made):
        keys = Counter((row["topic"], None, None, key) for row in made.rows for key in (row["keys"] or "").split())
        assert rows_of(counted(made, "topic"), KEY) == keys
        assert sum(key[3] == "all" for key in keys) == 4

    def test_only_what_was_chosen_is_counted(self, made):
        chosen = {"topic": ("TopicA",), "tags": "tag1 || tag2"}
        expected = [row for row in made.rows if row["topic"] == "TopicA" and row["tags"] in ("tag1", "tag2")]
        assert expected
        assert rows_of(counted(made, "topic", **chosen), SIZE).total() == len(expected)
        noon = made.rows[600]["storeTimestamp"]
        since = counted(made, "topic", since=noon.isoformat())
        assert rows_of(since, SIZE).total() == len(made.rows) - 600


class TestHeavyHitters:
    def batch(self, *keys: str | None) -> pa.Table:
        return pa.table({"topic": ["t"] * len(keys), "keys": pa.array(keys, pa.string())})

    def counts(self, hitters: HeavyHitters) -> dict[str, int]:
        return {row["text"]: row["n"] for row in hitters.counts().to_pylist() if row["what"] == KEY}

    def test_counts_are_exact_while_there_is_room(self):
        hitters = HeavyHitters(3)
        hitters.add(self.batch("a b", "a", None, ""))
        hitters.add(self.batch("c a"))
        assert self.counts(hitters) == {"a": 3, "b": 1, "c": 1}
        assert not rows_of(hitters.counts(), MISSED)

    def test_beyond_it_the_frequent_ones_stay_and_the_error_is_told(self):
        random = np.random.default_rng(7)
        drawn = [f"k{min(int(value), 400)}" for value in random.exponential(40, 20_000)]
        truth, hitters = Counter(drawn), HeavyHitters(60)
        for first in range(0, len(drawn), 500):
            hitters.add(self.batch(*drawn[first : first + 500]))
        found = self.counts(hitters)
        (missed,) = rows_of(hitters.counts(), MISSED).values()
        assert 0 < missed <= len(drawn) / 60
        assert len(found) <= 60
        for key, count in truth.items():
            assert found.get(key, 0) <= count <= found.get(key, 0) + missed


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"since": "noon"}, "--since: 'noon' is not a time"),
        ({"until": "1960-01-01"}, "--until: 1960-01-01 lies before 1970"),
        ({"tags": "||"}, "--tags:"),
    ],
)
def test_a_wrong_choice_is_refused_by_the_name_of_its_option(wrong, told):
    with pytest.raises(IllegalOption, match=told):
        stats.Options(store="store", **wrong)
