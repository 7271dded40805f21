"""CRC-32 by carry-less multiplication, sixteen bytes at a step, for CPUs that have the instruction.

After V. Gopal and others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009),
with its constants for the reflected polynomial of IEEE CRC-32. The last bytes that fill no step are folded together
with the bytes before them, so that no length falls back to tables.
"""

from collections.abc import Callable
from typing import Any, Final

from towline.kernels.jit.compiled import Bytes, instruction, library, types

binding: Final = library("llvmlite.binding")
cgutils: Final = library("numba.core.cgutils")
config: Final = library("numba.core.config")
ir: Final = library("llvmlite.ir")

STEP: Final = 16  # the shortest length it takes

_BYTE: Final = ir.IntType(8)
_LONG: Final = ir.IntType(64)
_WIDE: Final = ir.IntType(128)
_PAIR: Final = ir.VectorType(_LONG, 2)
_LANES: Final = 4
_ROUND: Final = _LANES * STEP

_FOLD_ROUND: Final = (0x1_5444_2BD4, 0x1_C6E4_1596)  # moves a step 64 bytes on
_FOLD_STEP: Final = (0x1_7519_97D0, 0x0_CCAA_009E)  # moves a step 16 bytes on
_FOLD_WORD: Final = (0x1_63CD_6124, 0)
_BARRETT: Final = (0x1_DB71_0641, 0x1_F701_1641)  # the polynomial, and its reciprocal
_WORD: Final = 0xFFFF_FFFF
_LOW_WORDS: Final = (_WORD, _WORD)


def available() -> bool:
    """Whether numba compiles for a CPU that has the instruction."""
    settings: Any = config
    if settings.CPU_NAME not in (None, "host") or settings.CPU_FEATURES:
        return False
    return bool(binding.get_host_cpu_features().get("pclmul"))


def _pair(values: tuple[int, int]) -> Any:
    return ir.Constant(_PAIR, list(values))


class _Emitter:
    """Writes the instructions of one CRC: `length` bytes from `start` on, stored at `target` as they are loaded.

    `before` is the CRC of bytes that stand before them, if there are any.
    """

    def __init__(self, builder: Any, start: Any, length: Any, target: Any = None, before: Any = None) -> None:
        self._builder = builder
        self._start = start
        self._length = length
        self._target = target
        self._before = before
        declare: Any = cgutils.get_or_insert_function
        kind = ir.FunctionType(_PAIR, [_PAIR, _PAIR, _BYTE])
        self._multiply = declare(builder.module, kind, "llvm.x86.pclmulqdq")

    def crc(self) -> Any:
        alloca: Any = cgutils.alloca_once
        state, at = alloca(self._builder, _PAIR), alloca(self._builder, _LONG)
        begun = self._load(_LONG(0), _PAIR)
        begun = self._builder.xor(begun, self._register())
        with self._builder.if_else(self._fits(_LONG(0), _ROUND)) as (many, few):
            with many:
                self._rounds(begun, state, at)
            with few:
                self._builder.store(begun, state)
                self._builder.store(_LONG(STEP), at)
        self._while_fits(at, STEP, lambda place: self._step(state, place))
        self._tail(state, at)
        return self._reduce(self._builder.load(state))

    def _register(self) -> Any:
        """What the CRC's register holds at the beginning."""
        if self._before is None:
            return _pair((_WORD, 0))
        held = self._builder.xor(self._before, _LONG(_WORD))
        return self._builder.insert_element(_pair((0, 0)), held, ir.IntType(32)(0))

    def _rounds(self, begun: Any, state: Any, at: Any) -> None:
        """Four lanes side by side as long as they fit; then the lanes become one."""
        builder = self._builder
        alloca: Any = cgutils.alloca_once
        lanes = [alloca(builder, _PAIR) for _ in range(_LANES)]
        for number, lane in enumerate(lanes):
            builder.store(self._load(_LONG(number * STEP), _PAIR) if number else begun, lane)
        builder.store(_LONG(_ROUND), at)

        def one_round(place: Any) -> None:
            for number, lane in enumerate(lanes):
                data = self._load(builder.add(place, _LONG(number * STEP)), _PAIR)
                builder.store(builder.xor(self._fold(builder.load(lane), _FOLD_ROUND), data), lane)

        self._while_fits(at, _ROUND, one_round)
        whole = builder.load(lanes[0])
        for lane in lanes[1:]:
            whole = builder.xor(self._fold(whole, _FOLD_STEP), builder.load(lane))
        builder.store(whole, state)

    def _step(self, state: Any, place: Any) -> None:
        folded = self._fold(self._builder.load(state), _FOLD_STEP)
        self._builder.store(self._builder.xor(folded, self._load(place, _PAIR)), state)

    def _tail(self, state: Any, at: Any) -> None:
        """The last bytes, fewer than a step: the state's first bytes are folded onto the step that ends at the end."""
        builder = self._builder
        rest = builder.sub(self._length, builder.load(at))
        with builder.if_then(builder.icmp_signed(">", rest, _LONG(0))):
            bits = builder.zext(builder.shl(rest, _LONG(3)), _WIDE)
            others = builder.sub(_WIDE(8 * STEP), bits)
            held = builder.bitcast(builder.load(state), _WIDE)
            first = builder.bitcast(builder.shl(held, others), _PAIR)
            data = self._load(builder.sub(self._length, _LONG(STEP)), _WIDE)
            fresh = builder.shl(builder.lshr(data, others), others)
            last = builder.bitcast(builder.or_(builder.lshr(held, bits), fresh), _PAIR)
            builder.store(builder.xor(self._fold(first, _FOLD_STEP), last), state)

    def _reduce(self, state: Any) -> Any:
        """From 128 bits to 64, to 32 by Barrett's reduction."""
        builder = self._builder
        moved = self._product(state, _FOLD_STEP, 0x10)
        state = builder.xor(self._right(state, 64), moved)
        moved = self._product(builder.and_(state, _pair(_LOW_WORDS)), _FOLD_WORD, 0x00)
        state = builder.xor(moved, self._right(state, 32))
        quotient = self._product(builder.and_(state, _pair(_LOW_WORDS)), _BARRETT, 0x10)
        product = self._product(builder.and_(quotient, _pair(_LOW_WORDS)), _BARRETT, 0x00)
        low = builder.extract_element(builder.xor(state, product), ir.IntType(32)(0))
        return builder.xor(builder.lshr(low, _LONG(32)), _LONG(_WORD))

    def _fold(self, value: Any, constants: tuple[int, int]) -> Any:
        return self._builder.xor(self._product(value, constants, 0x00), self._product(value, constants, 0x11))

    def _product(self, value: Any, constants: tuple[int, int], halves: int) -> Any:
        return self._builder.call(self._multiply, [value, _pair(constants), _BYTE(halves)])

    def _right(self, value: Any, bits: int) -> Any:
        shifted = self._builder.lshr(self._builder.bitcast(value, _WIDE), _WIDE(bits))
        return self._builder.bitcast(shifted, _PAIR)

    def _load(self, place: Any, kind: Any) -> Any:
        builder = self._builder
        data = builder.load(builder.bitcast(builder.gep(self._start, [place]), kind.as_pointer()), align=1)
        if self._target is not None:
            builder.store(data, builder.bitcast(builder.gep(self._target, [place]), kind.as_pointer()), align=1)
        return data

    def _fits(self, place: Any, size: int) -> Any:
        return self._builder.icmp_signed("<=", self._builder.add(place, _LONG(size)), self._length)

    def _while_fits(self, at: Any, size: int, body: Callable[[Any], None]) -> None:
        """Runs `body` at each place from `at` on where `size` bytes are left, and moves `at`."""
        builder = self._builder
        test, inside, after = (builder.append_basic_block(f"crc.{name}") for name in ("test", "inside", "after"))
        builder.branch(test)
        builder.position_at_end(test)
        place = builder.load(at)
        builder.cbranch(self._fits(place, size), inside, after)
        builder.position_at_end(inside)
        body(place)
        builder.store(builder.add(place, _LONG(size)), at)
        builder.branch(test)
        builder.position_at_end(after)


def _bytes_at(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    """The address of byte `at` of an array."""
    return builder.gep(
        builder.bitcast(context.make_array(kind)(context, builder, array).data, _BYTE.as_pointer()), [at]
    )


def _folded(typing_context: Any, buffer: Any, start: Any, length: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source = _bytes_at(context, builder, signature.args[0], args[0], args[1])
        return _Emitter(builder, source, args[2]).crc()

    return types.int64(buffer, types.int64, types.int64), generate


def _continued(typing_context: Any, before: Any, buffer: Any, start: Any, length: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source = _bytes_at(context, builder, signature.args[1], args[1], args[2])
        return _Emitter(builder, source, args[3], before=args[0]).crc()

    return types.int64(types.int64, buffer, types.int64, types.int64), generate


def _copied(typing_context: Any, target: Any, at: Any, buffer: Any, start: Any, length: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to = _bytes_at(context, builder, signature.args[0], args[0], args[1])
        source = _bytes_at(context, builder, signature.args[2], args[2], args[3])
        return _Emitter(builder, source, args[4], to).crc()

    return types.int64(target, types.int64, buffer, types.int64, types.int64), generate


crc_folded: Final[Callable[[Bytes, int, int], int]] = instruction(_folded)  # of STEP bytes or more
# The same of bytes that follow those whose CRC is given: before, buffer, start, length.
crc_folded_on: Final[Callable[[int, Bytes, int, int], int]] = instruction(_continued)
# The same of `buffer`, copied to `target` on the way: target, at, buffer, start, length.
crc_folded_copy: Final[Callable[[Bytes, int, Bytes, int, int], int]] = instruction(_copied)
