"""libzmq's functions by their addresses, for kernels that receive and send without the interpreter.

It is the libzmq that pyzmq itself is linked to, so both may use one socket in turns, from one thread.
"""

import ctypes
import errno
from typing import Any, Final, Protocol

import zmq
from zmq.backend.cython import _zmq

UNDELIVERED: Final = (zmq.EAGAIN, zmq.EHOSTUNREACH)  # the peer's queue is full; it is not there any more (H20)
_LIBC: Final = ctypes.CDLL(None)
_LIBRARY: Final = ctypes.CDLL(_zmq.__file__)
_LIBRARY.zmq_msg_get.argtypes = [ctypes.c_void_p, ctypes.c_int]
_LIBRARY.zmq_msg_gets.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_LIBRARY.zmq_msg_gets.restype = ctypes.c_char_p


class ReceivedPart(Protocol):
    """A received part: what libzmq knows of its connection. A zmq.Frame is one."""

    def get(self, option: Any, /) -> Any:
        """The value of an option, or a property of that name. Raises zmq.ZMQError."""
        ...


class Message:
    """A zmq_msg_t that a kernel owns."""

    def __init__(self, address: int) -> None:
        self._address = address

    def get(self, option: Any, /) -> Any:
        if isinstance(option, str):
            found = _LIBRARY.zmq_msg_gets(self._address, option.encode())
            if found is None:
                raise zmq.ZMQError(errno.EINVAL)
            return found.decode()
        value = _LIBRARY.zmq_msg_get(self._address, int(option))
        if value < 0:
            raise zmq.ZMQError(errno.EINVAL)
        return value


def address_of(function: str) -> int:
    """The address of one of libzmq's functions."""
    address = ctypes.cast(getattr(_LIBRARY, function), ctypes.c_void_p).value
    assert address is not None
    return address


def address_of_call(function: str) -> int:
    """The address of one of the C library's functions."""
    address = ctypes.cast(getattr(_LIBC, function), ctypes.c_void_p).value
    assert address is not None
    return address


def failure(error: int) -> Exception:
    """The exception that pyzmq raises for that errno."""
    return zmq.ZMQError(error)


def bytes_from(address: int, size: int) -> bytes:
    """A copy of the bytes at an address."""
    return ctypes.string_at(address, size)


def view_of(address: int, size: int) -> memoryview:
    """A view of the bytes at an address, valid as long as they are."""
    return memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B").toreadonly()
