"""The promise of a node to follow no master of a lower epoch (H16, H18), synced before it is sent."""

from collections.abc import Collection
from typing import Any, NamedTuple

from towline.log.errors import WordLost
from towline.log.files.mirrored_file import MirroredFile
from towline.log.files.segment_files import make_directory
from towline.log.files.store_files import write_atomically
from towline.log.state.in_sync_file import FLOOR_UNKNOWN, InSyncFile, InSyncRecord
from towline.places import Store


class Promise(NamedTuple):
    """Given to `node` for its `epoch`; to ourselves when this node opens it. Epoch 0: nothing was promised yet.

    `floor`: the least min_in_sync_replicas of those to whom it was given since this node heard of an in-sync set: they
    may have gone on with so many, and a set that was never heard does not say so.
    """

    epoch: int
    node: int
    floor: int = FLOOR_UNKNOWN


NOTHING = Promise(0, -1)


def load_promise(store: Store) -> Promise:
    """Raises WordLost: a promise before this one would be a lower one."""
    found = MirroredFile(store.promise).load()
    return NOTHING if found is None else _promise(store, found)


def save_promise(store: Store, promise: Promise, before: Promise | None = None) -> None:
    """`before`: the promise that is restored if the node's own promotion fails.

    Raises StoreNotWritable, SyncFailed, DiskFull.
    """
    facts: dict[str, Any] = dict(promise._asdict())
    if before is not None:
        facts["before"] = before._asdict()
    MirroredFile(store.promise).save(facts)


def begin_doubt(store: Store) -> None:
    """Of a start that knows nothing of the log: after a power cut that may end before what was acknowledged.

    It ends when the log has come to where a master's ended at the handshake (`slave.joining`).
    Raises StoreNotWritable, SyncFailed, DiskFull.
    """
    make_directory(store.ha)
    write_atomically(store.doubt, b"")


def promise_before(store: Store) -> Promise:
    """What binds a node apart from a promotion of its own that was cut short: killed before it was master.

    The in-sync set of the new epoch is recorded when enough others have promised; from then on it may be master, and
    its promise stays. Raises WordLost.
    """
    promise, found = load_promise(store), MirroredFile(store.promise).load()
    if found is None or "before" not in found:
        return promise
    return binding(promise, _promise(store, found["before"]), InSyncFile(store).load())


def kept(asked: Promise, given: Promise, record: InSyncRecord | None) -> Promise:
    """What a node keeps of the promise `asked` that gave another one before and has recorded this in-sync set."""
    is_heard = given.epoch <= (0 if record is None else record.epoch)
    return asked if is_heard else asked._replace(floor=min(asked.floor, given.floor))


def binding(promise: Promise, before: Promise, record: InSyncRecord | None) -> Promise:
    """Of a promise to itself and the one `before` it that which binds a node with this in-sync set recorded."""
    return promise if record is not None and record.epoch >= promise.epoch else before


def is_granted(asked: Promise, given: Promise, epoch: int, own: int) -> bool:
    """Whether node `own`, which is or follows the master of `epoch` and gave a promise before, gives this one.

    The same once more is granted: the answer was lost.
    """
    if asked.node == own:
        return False
    again = (asked.epoch, asked.node) == (given.epoch, given.node)
    return asked.epoch >= epoch if again else asked.epoch > max(given.epoch, epoch)


def is_of_another(heard: Promise, known: int, own: int, peers: Collection[int]) -> bool:
    """Whether an epoch that was heard of is later than all that is `known`, and one of another node of the group."""
    return heard.node in peers and heard.node != own and heard.epoch > known


def _promise(store: Store, found: Any) -> Promise:
    try:
        return Promise(int(found["epoch"]), int(found["node"]), int(found.get("floor", FLOOR_UNKNOWN)))
    except (AttributeError, KeyError, TypeError, ValueError):
        raise WordLost(str(store.promise), "it names no epoch and node") from None
