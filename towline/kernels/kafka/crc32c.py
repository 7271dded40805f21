"""CRC-32C, Castagnoli's polynomial: the one of Kafka's record batches, not the one of RocketMQ's records.

By the instruction of SSE 4.2 where the CPU has it, else by four tables.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from towline.kernels.base.crc import tables_of
from towline.kernels.base.words import load_u8, raw_i64, raw_u32
from towline.kernels.jit.compiled import (
    I64,
    NUMBERS,
    NUMBERS_READ,
    READ,
    Bytes,
    Numbers,
    helper,
    instruction,
    kernel,
    library,
    types,
)

binding: Final = library("llvmlite.binding")
cgutils: Final = library("numba.core.cgutils")
config: Final = library("numba.core.config")
ir: Final = library("llvmlite.ir")

_POLYNOMIAL: Final = 0x82F6_3B78  # bit-reversed
_WORD: Final = 0xFFFF_FFFF
_STEP: Final = 8
_SLICES: Final = 4


def available() -> bool:
    """Whether numba compiles for a CPU that has the instruction."""
    settings: Any = config
    if settings.CPU_NAME not in (None, "host") or settings.CPU_FEATURES:
        return False
    return bool(binding.get_host_cpu_features().get("sse4.2"))


def _advancer(name: str, register: int, data: int) -> Callable[[int, int], int]:
    """crc, bytes -> crc, by an instruction whose register has so many bits, as its bytes have."""

    def advance(typing_context: Any, crc: Any, word: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            held, given = ir.IntType(register), ir.IntType(data)
            declare: Any = cgutils.get_or_insert_function
            function = declare(builder.module, ir.FunctionType(held, [held, given]), name)
            before = args[0] if register == 64 else builder.trunc(args[0], held)
            after = builder.call(function, [before, args[1] if data == 64 else builder.trunc(args[1], given)])
            return after if register == 64 else builder.zext(after, ir.IntType(64))

        return types.int64(types.int64, types.int64), generate

    return instruction(advance)


_advance_word: Final = _advancer("llvm.x86.sse42.crc32.64.64", 64, 64)
_advance_byte: Final = _advancer("llvm.x86.sse42.crc32.32.8", 32, 8)


_TABLES: Final = tables_of(_POLYNOMIAL, _SLICES)


@helper
def _entry(row: int, byte: int) -> int:
    return np.int64(_TABLES[row, byte & 0xFF])  # type: ignore[return-value]


@helper
def crc32c_by_tables(buffer: Bytes, start: int, length: int) -> int:
    at = start
    end = start + length
    crc = _WORD
    while at + _SLICES <= end:
        word = raw_u32(buffer, at) ^ crc
        crc = _entry(3, word) ^ _entry(2, word >> 8) ^ _entry(1, word >> 16) ^ _entry(0, word >> 24)
        at += _SLICES
    while at < end:
        crc = (crc >> 8) ^ _entry(0, crc ^ load_u8(buffer, at))
        at += 1
    return crc ^ _WORD


@helper
def _crc32c_by_instruction(buffer: Bytes, start: int, length: int) -> int:
    at = start
    end = start + length
    crc = _WORD
    while at + _STEP <= end:
        crc = _advance_word(crc, raw_i64(buffer, at))
        at += _STEP
    while at < end:
        crc = _advance_byte(crc, load_u8(buffer, at))
        at += 1
    return crc ^ _WORD


crc32c_of: Final = _crc32c_by_instruction if available() else crc32c_by_tables


@kernel(I64(READ, NUMBERS_READ, NUMBERS_READ, NUMBERS))
def crc32c_each(buffer: Bytes, starts: Numbers, lengths: Numbers, result: Numbers) -> int:
    """The CRC of each stretch, `lengths[n]` bytes from `starts[n]` on, into `result[n]`; returns how many."""
    for number in range(starts.size):
        result[number] = crc32c_of(buffer, starts[number], lengths[number])
    return starts.size
