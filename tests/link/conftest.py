"""What tests of links share."""

import os
import resource
from collections.abc import Iterator

import pytest

FD_SETSIZE = 1024


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """What is opened from here on has a number that select() refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(4 * FD_SETSIZE, hard)), hard))
    taken = [os.open(os.devnull, os.O_RDONLY)]
    while taken[-1] < FD_SETSIZE:
        taken.append(os.dup(taken[0]))
    yield
    for descriptor in taken:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
