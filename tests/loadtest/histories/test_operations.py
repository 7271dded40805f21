"""What a drill hands to Porcupine of what its producers sent."""

import json
from pathlib import Path

import pytest

from towline.loadtest.drill.history import (
    ACKNOWLEDGED,
    HISTORY,
    STORES,
    UNKNOWN,
    Outcome,
    key_of,
    line_of,
    read_lines,
    topic_of,
)
from towline.loadtest.drill.operations import OPERATIONS, write_operations

RUN = 7


@pytest.mark.parametrize(
    ("idempotent", "copies"), [(True, [1, 1]), (False, [1, 3])], ids=["idempotent producers", "others"]
)
def test_a_message_may_be_there_as_often_as_it_was_sent_but_for_idempotent_producers(
    tmp_path: Path, idempotent: bool, copies: list[int]
) -> None:
    sent = [(0, ACKNOWLEDGED, 1), (-1, UNKNOWN, 3), (-1, UNKNOWN, 0)]
    outcomes = [
        Outcome(key_of(RUN, 0, number), topic_of(RUN, 0), 0, at, 9, status, attempts, float(number), number + 0.5)
        for number, (at, status, attempts) in enumerate(sent)
    ]
    (tmp_path / HISTORY).write_bytes(b"".join(map(line_of, outcomes)))
    said = {"stores": {}, "away": [], "segment_size": 1 << 20, "topics": [topic_of(RUN, 0)], "idempotent": idempotent}
    (tmp_path / STORES).write_text(json.dumps(said))
    assert write_operations(tmp_path) == len(copies), "what was never sent is no operation"
    assert [row["Input"]["copies"] for row in read_lines(tmp_path / OPERATIONS)] == copies
