"""Producers of this process without rings, so that what they put goes over put's socket."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from towline.client.send import transport


def _none(_: object) -> None:
    raise OSError(errno.ENOMEM, "no room for a ring")


@contextmanager
def without_rings() -> Iterator[None]:
    """Of producers that connect in the block."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(transport, "ClientRing", _none)
        yield
