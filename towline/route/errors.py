"""Errors of cluster files and of etcd, for clients as well as for nodes."""

from towline.errors import Remedy, TowlineError


class UnreadableCluster(TowlineError):
    """A cluster file that cannot be read, or is no TOML. Facts: path, why."""

    remedy = Remedy.FIX_SETTINGS
    advice = "name a readable cluster file; `towline cluster init` writes a commented one"

    def __init__(self, path: str, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(path, why)

    def describe(self) -> str:
        return f"the cluster file {self.path} cannot be read: {self.why}"


class BadCluster(TowlineError):
    """A cluster file whose content cannot be. Facts: path, table ("" for the top), key ("" for all of it), why."""

    remedy = Remedy.FIX_SETTINGS
    advice = "correct the file; docs/operations.md describes its keys, `towline cluster init` writes a commented one"

    def __init__(self, path: str, table: str, key: str, why: str) -> None:
        self.path, self.table, self.key, self.why = path, table, key, why
        super().__init__(path, table, key, why)

    def describe(self) -> str:
        return ": ".join(filter(None, (self.path, self.table, self.key, self.why)))


class UnknownNode(TowlineError):
    """A group, or a node of it, that the cluster file does not have. Facts: path, what was asked for, what there is."""

    remedy = Remedy.FIX_CALL
    advice = "name a group of the file and one of its nodes"

    def __init__(self, path: str, asked: str, known: str) -> None:
        self.path, self.asked, self.known = path, asked, known
        super().__init__(path, asked, known)

    def describe(self) -> str:
        return f"{self.path} has no {self.asked}, it has {self.known}"


class ChangeRefused(TowlineError):
    """A change of the cluster that would be unsafe, or cannot be. Facts: what, why, what to do instead."""

    remedy = Remedy.FIX_CALL

    def __init__(self, what: str, why: str, instead: str) -> None:
        self.what, self.why, self.instead = what, why, instead
        super().__init__(what, why, instead)

    def describe(self) -> str:
        return f"{self.what}: {self.why}: {self.instead}"

    advice = "nothing was changed"


class EtcdSilent(TowlineError):
    """Etcd could not be asked who leads. Facts: each of its addresses with what went wrong there."""

    remedy = Remedy.RETRY
    advice = "check the addresses, written etcd:http://HOST:PORT/CLUSTER, and that etcd runs"

    def __init__(self, troubles: str) -> None:
        self.troubles = troubles
        super().__init__(troubles)

    def describe(self) -> str:
        return f"etcd does not say who leads: {self.troubles}"
