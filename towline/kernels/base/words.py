"""Words at any byte of a buffer, in the big-endian order of the files, and the places of special bytes.

Each is one or a few machine instructions; none checks bounds.
"""

from collections.abc import Callable
from typing import Any, Final

from towline.kernels.jit.compiled import Bytes, instruction, library, types

cgutils: Final = library("numba.core.cgutils")
ir: Final = library("llvmlite.ir")

BLOCK: Final = 32  # bytes that `below`, `equal` compare

_BYTE = ir.IntType(8)
_VECTOR = ir.VectorType(_BYTE, BLOCK)


def _address(context: Any, builder: Any, signature: Any, args: Any, kind: Any) -> Any:
    """A pointer to `kind` at args[1] bytes into the array args[0]."""
    array = context.make_array(signature.args[0])(context, builder, args[0])
    data = builder.bitcast(array.data, _BYTE.as_pointer())
    return builder.bitcast(builder.gep(data, [args[1]]), kind.as_pointer())


def _swap(builder: Any, value: Any) -> Any:
    bits = value.type.width
    declare: Any = cgutils.get_or_insert_function
    function = declare(builder.module, ir.FunctionType(value.type, [value.type]), f"llvm.bswap.i{bits}")
    return builder.call(function, [value])


def _loader(bits: int, signed: bool, big_endian: bool) -> Callable[[Bytes, int], int]:
    def load(typing_context: Any, buffer: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            word = ir.IntType(bits)
            value = builder.load(_address(context, builder, signature, args, word), align=1)
            if big_endian and bits > 8:
                value = _swap(builder, value)
            if bits == 64:
                return value
            return builder.sext(value, ir.IntType(64)) if signed else builder.zext(value, ir.IntType(64))

        return types.int64(buffer, types.int64), generate

    return instruction(load)


def _storer(bits: int, big_endian: bool = True) -> Callable[[Bytes, int, int], None]:
    def store(typing_context: Any, buffer: Any, at: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            word = ir.IntType(bits)
            stored = args[2] if bits == 64 else builder.trunc(args[2], word)
            if big_endian:
                stored = _swap(builder, stored)
            builder.store(stored, _address(context, builder, signature, args, word), align=1)
            return context.get_dummy_value()

        return types.void(buffer, types.int64, types.int64), generate

    return instruction(store)


def _finder(compare: str) -> Callable[[Bytes, int, int], int]:
    def find(typing_context: Any, buffer: Any, at: Any, byte: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            block = builder.load(_address(context, builder, signature, args, _VECTOR), align=1)
            one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), builder.trunc(args[2], _BYTE), _INDEX)
            every = builder.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), _ZEROS)
            found = builder.icmp_unsigned(compare, block, every)
            return builder.zext(builder.bitcast(found, ir.IntType(BLOCK)), ir.IntType(64))

        return types.int64(buffer, types.int64, types.int64), generate

    return instruction(find)


def _copy(typing_context: Any, target: Any, at: Any, source: Any, start: Any, size: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to = builder.bitcast(context.make_array(signature.args[0])(context, builder, args[0]).data, _BYTE.as_pointer())
        of = builder.bitcast(context.make_array(signature.args[2])(context, builder, args[2]).data, _BYTE.as_pointer())
        copy: Any = cgutils.raw_memcpy
        copy(builder, builder.gep(to, [args[1]]), builder.gep(of, [args[3]]), args[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate


def _trailing(typing_context: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate


def _load_shared(typing_context: Any, buffer: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_address(context, builder, signature, args, _WORD), "acquire", 8)

    return types.int64(buffer, types.int64), generate


def _store_shared(typing_context: Any, buffer: Any, at: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[2], _address(context, builder, signature, args, _WORD), "release", 8)
        return context.get_dummy_value()

    return types.void(buffer, types.int64, types.int64), generate


def _fencer(ordering: str) -> Callable[[], None]:
    def fence(typing_context: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.fence(ordering)
            return context.get_dummy_value()

        return types.void(), generate

    return instruction(fence)


def _pause(typing_context: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        declare: Any = cgutils.get_or_insert_function
        builder.call(declare(builder.module, ir.FunctionType(ir.VoidType(), []), "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()

    return types.void(), generate


def _cycles(typing_context: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        declare: Any = cgutils.get_or_insert_function
        counter = declare(builder.module, ir.FunctionType(ir.IntType(64), []), "llvm.readcyclecounter")
        return builder.call(counter, [])

    return types.int64(), generate


_WORD = ir.IntType(64)
_INDEX = ir.Constant(ir.IntType(32), 0)
_ZEROS = ir.Constant(ir.VectorType(ir.IntType(32), BLOCK), [0] * BLOCK)

load_i32: Final = _loader(32, signed=True, big_endian=True)
load_u32: Final = _loader(32, signed=False, big_endian=True)
load_u8: Final = _loader(8, signed=False, big_endian=True)
load_u16: Final = _loader(16, signed=False, big_endian=True)
load_i64: Final = _loader(64, signed=True, big_endian=True)
raw_u32: Final = _loader(32, signed=False, big_endian=False)  # little-endian, as x86-64 holds it
raw_i64: Final = _loader(64, signed=True, big_endian=False)
store_i32: Final = _storer(32)
store_i64: Final = _storer(64)
raw_store_u32: Final = _storer(32, big_endian=False)
raw_store_i64: Final = _storer(64, big_endian=False)
below: Final = _finder("<")  # bit n: byte n of the block at `at` is below the given one
equal: Final = _finder("==")
copy_bytes: Final = instruction(_copy)  # target, at, source, start, size
trailing_zeros: Final = instruction(_trailing)  # of a value that is not 0

# Words that another process stores or reads meanwhile, at a multiple of 8: each is one instruction, and what stands
# before or behind it in a kernel stays there.
load_shared: Final = instruction(_load_shared)  # buffer, at: nothing behind it is read before it
store_shared: Final = instruction(_store_shared)  # buffer, at, value: everything before it is seen first
stores_first: Final = _fencer("release")  # no store behind it is made before one above it
full_fence: Final = _fencer("seq_cst")  # nor a load behind it before a store above it
pause: Final = instruction(_pause)  # between two checks of a word
cycles: Final = instruction(_cycles)  # of a clock that runs evenly, in a unit of its own
