"""Errors of cluster files and of etcd, for clients as well as for nodes."""

from towline.errors import Remedy, TowlineError


class UnreadableCluster(TowlineError, remedy=Remedy.FIX_SETTINGS):
    path: str
    why: str
    template = "the cluster file {path} cannot be read: {why}"
    advice = "name a readable cluster file; `towline cluster init` writes a commented one"


class BadCluster(TowlineError, remedy=Remedy.FIX_SETTINGS):
    """A cluster file whose content cannot be."""

    path: str
    table: str  # "" for the top of the file
    key: str  # "" for all of the table
    why: str
    advice = "correct the file; docs/operations.md describes its keys, `towline cluster init` writes a commented one"


class UnknownNode(TowlineError, remedy=Remedy.FIX_CALL):
    path: str
    asked: str
    known: str
    template = "{path} has no {asked}, it has {known}"
    advice = "name a group of the file and one of its nodes"


class ChangeRefused(TowlineError, remedy=Remedy.FIX_CALL):
    """A change of the cluster that would be unsafe, or cannot be."""

    what: str
    why: str
    instead: str
    advice = "nothing was changed"


class EtcdSilent(TowlineError, remedy=Remedy.RETRY):
    troubles: str
    template = "etcd does not say who leads: {troubles}"
    advice = "check the addresses, written etcd:http://HOST:PORT/CLUSTER, and that etcd runs"
