"""What can be wrong with settings. Beside the settings, because a client, which imports towline.errors, has none."""

from towline.errors import Remedy, TowlineError


class UnknownSetting(TowlineError):
    """A key that is no setting. Facts: key, source, nearest right key ("" if none is near)."""

    remedy = Remedy.FIX_SETTINGS
    advice = "correct or remove the key; docs/settings.md lists all"

    def __init__(self, key: str, source: str, nearest: str) -> None:
        self.key, self.source, self.nearest = key, source, nearest
        super().__init__(key, source, nearest)

    def describe(self) -> str:
        meant = f", did you mean {self.nearest!r}?" if self.nearest else ""
        return f"{self.source}: {self.key!r} is not a setting{meant}"


class BadSetting(TowlineError):
    """A value that cannot be. Facts: key, value as written, source, why."""

    remedy = Remedy.FIX_SETTINGS
    advice = "correct the value; docs/settings.md gives the unit and the meaning of each key"

    def __init__(self, key: str, value: str, source: str, why: str) -> None:
        self.key, self.value, self.source, self.why = key, value, source, why
        super().__init__(key, value, source, why)

    def describe(self) -> str:
        return f"{self.source}: {self.key} = {self.value}: {self.why}"


class UnreadableSettings(TowlineError):
    """A settings file that cannot be read. Facts: path, why."""

    remedy = Remedy.FIX_SETTINGS
    advice = "name a readable .toml file, or a broker.conf of Java properties"

    def __init__(self, path: str, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(path, why)

    def describe(self) -> str:
        return f"the settings file {self.path} cannot be read: {self.why}"
