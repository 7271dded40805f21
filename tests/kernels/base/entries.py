"""Entries to helpers of `towline.kernels.base`, which production inlines into other kernels."""

from collections.abc import Callable
from typing import Any, TypeVar

import numba

from towline.kernels.base import crc, hashing
from towline.kernels.jit.compiled import I32, I64, READ, WRITE, Bytes

Compiled = TypeVar("Compiled", bound=Callable[..., Any])


def entry(signature: Any) -> Callable[[Compiled], Compiled]:
    """Compiles for this signature, apart from the kernels that a node loads."""
    return numba.njit(signature, nogil=True, error_model="numpy", _nrt=False)


@entry(I64(READ, I64, I64))
def crc32(buffer: Bytes, start: int, length: int) -> int:
    return crc.crc_of(buffer, start, length)


@entry(I64(I64, READ, I64, I64))
def crc32_on(before: int, buffer: Bytes, start: int, length: int) -> int:
    return crc.crc_on(before, buffer, start, length)


@entry(I64(READ, I64, I64))
def crc32_by_tables(buffer: Bytes, start: int, length: int) -> int:
    return crc.crc_by_tables(buffer, start, length)


@entry(I64(WRITE, I64, READ, I64, I64))
def crc32_copy(target: Bytes, at: int, source: Bytes, start: int, length: int) -> int:
    return crc.copy_with_crc(target, at, source, start, length)


@entry(I64(WRITE, I64, READ, I64, I64))
def crc32_copy_by_tables(target: Bytes, at: int, source: Bytes, start: int, length: int) -> int:
    return crc.copy_by_tables(target, at, source, start, length)


@entry(I32(READ, I64, I64))
def java_hash(buffer: Bytes, start: int, length: int) -> int:
    return hashing.signed_32(hashing.continue_hash(buffer, start, length, 0))


@entry(I32(READ, I64, I64))
def key_hash(buffer: Bytes, start: int, length: int) -> int:
    return hashing.index_hash(hashing.continue_hash(buffer, start, length, 0))
