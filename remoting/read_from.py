"""Which broker a consumer had better pull from next: 0 is the master, every other number a slave's."""

from typing import Protocol

from towline.format.remoting.codes import ResponseCode

from .group_search import GroupSearch


class ReadFrom(Protocol):
    """What a node says of that in its answers to pulls."""

    def broker(self, queue_id: int, *, far: bool, left: int) -> int:
        """The number. `far`: serve says that a slave had better be read; `left`: messages of the queue behind the
        answer's, 0 for an answer without one."""

    def code(self, found: ResponseCode) -> ResponseCode:
        """The code of the answer, where serve's would be this one."""


class FromMaster:
    """A master with `slave_read_enable` sends who is far behind to a slave, the queues shared among the slaves."""

    def __init__(self, search: GroupSearch) -> None:
        self._search = search

    def broker(self, queue_id: int, *, far: bool, left: int) -> int:
        slaves = sorted(self._search.slaves) if far else []
        return slaves[queue_id % len(slaves)] if slaves else 0

    def code(self, found: ResponseCode) -> ResponseCode:
        return found


class FromSlave:
    """A slave keeps a reader until it has read the queue to the end, as far as it is here."""

    def __init__(self, own: int, search: GroupSearch) -> None:
        self._own, self._search = own, search

    def broker(self, queue_id: int, *, far: bool, left: int) -> int:
        return self._own if left > 0 else 0

    def code(self, found: ResponseCode) -> ResponseCode:
        """A slave moves nobody's offset, since it may only be behind: the master is asked at once. Without one a client
        that is refused comes again a few seconds later."""
        if found is not ResponseCode.PULL_OFFSET_MOVED:
            return found
        return ResponseCode.PULL_RETRY_IMMEDIATELY if self._search.master else ResponseCode.SYSTEM_ERROR
