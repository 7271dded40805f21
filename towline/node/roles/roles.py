"""The role of a node: given by the command at first, then agreed on with its peers (ha/role.json)."""

from dataclasses import asdict, dataclass

from towline.errors import MalformedFile
from towline.format.files.epochs import node_of
from towline.log.files.config_file import ConfigFile
from towline.log.files.segment_files import make_directory
from towline.places import Store
from towline.runtime.settings import Settings
from towline.runtime.settings_model import BrokerRole

MASTER = "master"
SLAVE = "slave"


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
    """None for a node that has never agreed with anybody. Raises MalformedFile."""
    found = ConfigFile(store.role).load()
    if found is None:
        return None
    try:
        sole = found.get("sole") is True
        role = Role(str(found["role"]), int(found["epoch"]), str(found["why"]), int(found["master"]), sole)
    except (KeyError, TypeError, ValueError):
        raise MalformedFile(str(store.role), "it names no role and epoch") from None
    if role.role not in (MASTER, SLAVE):
        raise MalformedFile(str(store.role), f"{role.role!r} is no role")
    return role


def save_role(store: Store, role: Role) -> None:
    """Raises StoreNotWritable, SyncFailed, DiskFull."""
    make_directory(store.ha)
    ConfigFile(store.role).save(asdict(role))


def wrote_as_sole_master(store: Store, own: int, newest: int) -> bool:
    """Whether the newest bytes of the log, of the epoch `newest`, were confirmed as they were written, by node `own`.

    Raises MalformedFile.
    """
    role = load_role(store)
    return role is not None and role.role == MASTER and role.sole and node_of(newest) == own


def wanted_role(store: Store, settings: Settings, asked: str) -> str:
    """The role to begin with: with peers the one that was agreed on last, whatever the command says.

    With etcd a node is a slave until it holds the lease.
    """
    if settings.etcd_endpoints:
        return SLAVE
    known = load_role(store) if settings.ha_peers else None
    return asked if known is None else known.role


def as_role(settings: Settings, role: str) -> Settings:
    """The settings as given, for a node that has this role now."""
    if role == SLAVE:
        return settings.model_copy(update={"broker_role": BrokerRole.SLAVE})
    given = settings.broker_role
    return settings.model_copy(update={"broker_role": settings.promoted_role if given is BrokerRole.SLAVE else given})
