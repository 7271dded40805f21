"""`ha/role.json`: the role on which a node last agreed with its peers."""

from dataclasses import asdict, dataclass
from typing import Final

from towline.errors import MalformedFile
from towline.log.errors import RoleLost
from towline.log.files.config_file import ConfigFile
from towline.log.files.segment_files import make_directory
from towline.places import Store

MASTER: Final = "master"
SLAVE: Final = "slave"


@dataclass(frozen=True)
class Role:
    """`epoch`: the one that this master opened, or 0. `master`: the broker_id of the master as far as known, or -1.

    `sole`: of an ASYNC_MASTER, which confirms what it writes without its slaves.
    """

    role: str
    epoch: int
    why: str
    master: int
    sole: bool = False


def load_role(store: Store) -> Role | None:
    """None for a node that has never agreed with anybody. Raises RoleLost."""
    path = str(store.role)
    try:
        found = ConfigFile(store.role).load()
    except MalformedFile as error:
        raise RoleLost(path, error.problem) from error
    if found is None:
        return None
    try:
        sole = found.get("sole") is True
        role = Role(str(found["role"]), int(found["epoch"]), str(found["why"]), int(found["master"]), sole)
    except (KeyError, TypeError, ValueError):
        raise RoleLost(path, "it names no role and epoch") from None
    if role.role not in (MASTER, SLAVE):
        raise RoleLost(path, f"{role.role!r} is no role")
    return role


def save_role(store: Store, role: Role) -> None:
    """Raises StoreNotWritable, SyncFailed, DiskFull."""
    make_directory(store.ha)
    ConfigFile(store.role).save(asdict(role))
