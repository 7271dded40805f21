"""The decoder that the benchmark compares with gives the same columns: else its ratio would say nothing."""

from pathlib import Path

import numpy as np

from tests.arrow.logs import rows
from towline.arrow.columns import COLUMNS
from towline.arrow.decode import batches
from towline.limits import KIB
from towline.loadtest.bench import spark_decode
from towline.loadtest.bench.made_log import make_log
from towline.log.files.segment_files import segment_name
from towline.places import Store


def test_record_by_record_gives_the_same(tmp_path: Path) -> None:
    log = make_log(tmp_path, 500, 8, segment_size=64 * KIB, body=30, per_topic=4, keys=True)
    found = 0
    for base in range(0, log.end, log.segment_size):
        data = (Store(tmp_path).commitlog / segment_name(base)).read_bytes()[: log.end - base]
        array = np.frombuffer(data, np.uint8)
        expected = [tuple(row.values()) for row in rows(batches(array, base, 0, len(array), COLUMNS))]
        whole = data[: sum(row[COLUMNS.index("size")] for row in expected)]
        assert list(spark_decode.plain(whole)) == expected
        found += len(expected)
    assert found == log.total


def test_what_is_measured(tmp_path: Path) -> None:
    log = make_log(tmp_path, 5_000, 8, segment_size=256 * KIB, body=30, per_topic=4, keys=True)
    notes: list[str] = []
    measured = spark_decode.measure(log, 2, notes.append)
    assert len(notes) == 2
    assert set(measured) >= {
        "all_per_s",
        "narrow_per_s",
        "plain_per_s",
        "all_of_plain",
        "narrow_of_plain",
        "queue_gb_s",
    }
    assert all(value > 0 for value in measured.values())
