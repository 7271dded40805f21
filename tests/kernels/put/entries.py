"""Entries to helpers of `towline.kernels.put`, which production inlines into other kernels."""

from tests.kernels.base.entries import entry
from towline.kernels.base.forms import REALS, Reals
from towline.kernels.jit.compiled import GROUPS, I64, NUMBERS, READ, WRITE, Bytes, Numbers, Rows
from towline.kernels.put import stamp


@entry(I64(WRITE, I64, READ, GROUPS, I64, READ, READ, I64, I64, READ, I64, I64, REALS, NUMBERS))
def append_request(
    log: Bytes,
    at: int,
    frame: Bytes,
    groups: Rows,
    group_count: int,
    arena: Bytes,
    own: Bytes,
    base: int,
    store_timestamp: int,
    store_host: Bytes,
    max_body: int,
    checks: int,
    reals: Reals,
    result: Numbers,
) -> int:
    """One request by itself, but for its first 8 bytes: `stamp.append_whole`."""
    return stamp.append_whole(
        log,
        at,
        frame,
        groups,
        group_count,
        arena,
        own,
        base,
        store_timestamp,
        store_host,
        max_body,
        checks,
        reals,
        result,
        0,
    )
