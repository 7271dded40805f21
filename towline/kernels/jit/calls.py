"""Functions of a C library called from inside a kernel, by their addresses, and the bytes that they point to.

Every argument is a word; a function that takes fewer does not read the others (System V and AAPCS64 alike).
"""

from collections.abc import Callable
from typing import Any, Final

from .compiled import Bytes, instruction, library, types

arrayobj: Final = library("numba.np.arrayobj")
ir: Final = library("llvmlite.ir")

_WORD = ir.IntType(64)
_BYTE = ir.IntType(8)


def _caller(bits: int) -> Callable[[int, int, int, int, int], int]:
    def call(typing_context: Any, address: Any, first: Any, second: Any, third: Any, fourth: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.FunctionType(ir.IntType(bits), [_WORD] * 4)
            value = builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
            return value if bits == 64 else builder.sext(value, _WORD)

        word = types.int64
        return word(word, word, word, word, word), generate

    return instruction(call)


def _bytes_at(typing_context: Any, address: Any, size: Any) -> Any:
    kind: Any = types.Array(types.uint8, 1, "C")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(kind)(context, builder)
        one = ir.Constant(_WORD, 1)
        populate: Any = arrayobj.populate_array
        data = builder.inttoptr(args[0], _BYTE.as_pointer())
        populate(array, data=data, shape=[args[1]], strides=[one], itemsize=one, meminfo=None)
        return array._getvalue()

    return kind(types.int64, types.int64), generate


call_int: Final = _caller(32)  # address, four arguments: of a function that returns an int
call_word: Final = _caller(64)  # of one that returns a pointer or a size
bytes_at: Final[Callable[[int, int], Bytes]] = instruction(_bytes_at)  # address, size: nobody keeps them but the caller
