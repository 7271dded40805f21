"""Hosts as text: of those that occur, each is written once for many records."""

from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from towline.format.record.columns import Integers, wider_by
from towline.format.record.record import BORN_HOST_IPV6, IPV4_SIZE, IPV6_SIZE, LAYOUT, Host

from .heads import FAMILIES, STORE_HOST, Heads
from .slices import repeated

_PORT_SIZE: Final = 4
_KNOWN_MAX: Final = 16_384  # hosts whose text is kept from one batch to the next


def hosts(heads: Heads, name: str) -> pa.StringArray:
    """The born or the store host of each record, as `Host` writes it."""
    packed = heads[name]
    wide = np.flatnonzero(heads.sys_flag & FAMILIES[name])
    if not len(wide):
        return _shown(packed)
    texts = _shown(packed).to_pylist()
    places = heads.positions[wide] + LAYOUT.offset[name]
    if name == STORE_HOST:
        places = places + wider_by(heads.sys_flag[wide], BORN_HOST_IPV6)
    for row, address in zip(wide.tolist(), _wide(heads, places), strict=True):
        texts[row] = address
    return pa.array(texts, pa.string())


def _shown(packed: NDArray[np.uint64]) -> pa.StringArray:
    if len(packed) and (packed == packed[0]).all():  # as a store's own host mostly is
        return repeated(_text(int(packed[0]).to_bytes(IPV4_SIZE + _PORT_SIZE, "big")), len(packed))
    encoded = pa.array(packed).dictionary_encode()
    distinct = [_text(number.to_bytes(IPV4_SIZE + _PORT_SIZE, "big")) for number in encoded.dictionary.to_pylist()]
    return pa.array(distinct, pa.string()).take(encoded.indices)


def _wide(heads: Heads, places: Integers) -> list[str]:
    """Of IPv6 hosts."""
    size = IPV6_SIZE + _PORT_SIZE
    packed = np.ndarray(len(heads.log) - size + 1, f"V{size}", heads.log, 0, (1,))[places].tolist()
    return list(map(_text, packed))


@lru_cache(maxsize=_KNOWN_MAX)
def _text(packed: bytes) -> str:
    port = int.from_bytes(packed[-_PORT_SIZE:], "big", signed=True)
    return str(Host(packed[:-_PORT_SIZE], port))
