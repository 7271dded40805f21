"""libzmq by its addresses, for a kernel that receives and sends without the interpreter; and a message it received.

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


class Came(Protocol):
    """Of a part that came: what libzmq knows of the connection. A zmq.Frame is one."""

    def get(self, option: Any, /) -> Any:
        """An option's number, or a property of that name. Raises zmq.ZMQError."""
        ...


class Message:
    """A zmq_msg_t that somebody else holds."""

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
    """Of one of libzmq's functions."""
    address = ctypes.cast(getattr(_LIBRARY, function), ctypes.c_void_p).value
    assert address is not None
    return address


def address_of_write() -> int:
    """Of the system's `write`: descriptor, address, size."""
    address = ctypes.cast(_LIBC.write, ctypes.c_void_p).value
    assert address is not None
    return address


def failure(error: int) -> Exception:
    """What pyzmq raises for that errno."""
    return zmq.ZMQError(error)


def bytes_from(address: int, size: int) -> bytes:
    """A copy of what stands there."""
    return ctypes.string_at(address, size)


def view_of(address: int, size: int) -> memoryview:
    """What stands there, for as long as it does."""
    return memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B").toreadonly()
