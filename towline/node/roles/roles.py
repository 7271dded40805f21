"""The role of a node: given by the command at first, then agreed on with its peers (ha/role.json)."""

from towline.format.files.epochs import node_of
from towline.log.state.role_file import SLAVE, load_role
from towline.places import Store
from towline.runtime.settings import Settings
from towline.runtime.settings_model import BrokerRole


def wrote_as_sole_master(store: Store, own: int, newest: int) -> bool:
    """Whether the newest bytes of the log, of the epoch `newest`, were confirmed as they were written, by node `own`.

    Raises RoleLost.
    """
    role = load_role(store)
    return role is not None and role.sole and node_of(newest) == own


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
