"""Numbers for queues: exact, dense, and stable while the directory grows."""

from hypothesis import given
from hypothesis import strategies as st

from towline.kernels.base.directory import NONE, QueueDirectory

PAIRS = st.tuples(
    st.binary(min_size=1, max_size=20) | st.sampled_from([b"T" * 8, b"T" * 9, b"T" * 255]), st.integers(-1, 3)
)


@given(st.lists(PAIRS, max_size=60), st.lists(PAIRS))
def test_it_answers_like_a_dict(added: list[tuple[bytes, int]], asked: list[tuple[bytes, int]]) -> None:
    directory = QueueDirectory()
    model: dict[tuple[bytes, int], int] = {}
    for pair in added:
        assert directory.add(*pair) == model.setdefault(pair, len(model))
    assert len(directory) == len(model)
    for pair in added + asked:
        assert directory.lookup(*pair) == model.get(pair, NONE)
    for (topic, queue_id), number in model.items():
        assert (directory.topic(number), directory.queue_id(number)) == (topic, queue_id)


def test_it_grows() -> None:
    directory = QueueDirectory()
    pairs = [(b"topic-%d" % (number // 8), number % 8) for number in range(3_000)]
    assert [directory.add(*pair) for pair in pairs] == list(range(len(pairs)))
    assert [directory.lookup(*pair) for pair in pairs] == list(range(len(pairs)))
    slots, queues, _ = directory.arrays
    assert len(slots) >= 2 * len(pairs)
    assert len(queues) >= len(pairs)
