"""Units that rule a record out: the kernel against the same said with numpy."""

import numpy as np
import pytest

from tests.filter.bits import may_match
from towline.filter.bloom import Bloom
from towline.format.files import consume_queue_ext as ext
from towline.kernels.scan.units import rule_out

BORN = 1000
COUNT = 400


@pytest.mark.parametrize("seed", range(3))
def test_it_says_what_the_fields_say(seed):
    rng = np.random.default_rng(seed)
    bloom = Bloom()
    positions = bloom.positions(f"group{seed}", "topic")
    other = bloom.size + int(rng.integers(1, 9))
    units, places, expected = b"", [], []
    for _ in range(COUNT):
        size = rng.choice([bloom.size, bloom.size, bloom.size, other, 0])
        bitmap = (rng.integers(0, 256, (1, size)) | rng.integers(0, 256, (1, size))).astype(np.uint8)
        time = BORN + int(rng.integers(-1, 3))
        unit = ext.encode(ext.Unit(int(rng.integers(-(2**31), 2**31)), time, bitmap.tobytes()))
        whole = rng.random() < 0.9
        places.append(len(units))
        units += unit if whole else b"\xff\xff" + unit[2:]
        speaks = whole and size == bloom.size and time > BORN
        expected.append(speaks and not may_match(bitmap, positions)[0])
    units += bytes(bloom.size)
    out = np.full(COUNT, 7, dtype=np.uint8)
    data, bits = np.frombuffer(units, dtype=np.uint8), np.array(positions, dtype=np.int64)
    assert rule_out(data, np.array(places), bloom.size, BORN, bits, out) == sum(expected)
    assert 0 < sum(expected) < COUNT
    assert out.tolist() == [int(each) for each in expected]
