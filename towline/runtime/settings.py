"""The settings of a node: read once, validated as a whole.

A value comes from the first source that has it: flags, environment (`TOWLINE_<KEY>`), what was kept of changes at run
time (`kept.toml` of the store), a file (TOML with snake_case keys, or a real `broker.conf`), the defaults of spec
section 12. An unknown key is refused in every source.
"""

import difflib
import ipaddress
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from towline.errors import BadSetting, FixedSetting, UnknownSetting, UnreadableSettings
from towline.format.files.seed import parse_seed
from towline.limits import BLANK_SIZE_MIN, DAY_S, DELAY_MAX_S, NODE_MAX, PAGE, RECORD_OVERHEAD_MAX

from .broker_conf import NOT_APPLICABLE, read_broker_conf
from .ports import broken_ports, defaults_of_ports, is_loopback
from .scheduling import Scheduling, parse_scheduling
from .settings_model import (
    INT32_MAX,
    AllocateKeys,
    BrokerRole,
    CleanKeys,
    FilterKeys,
    FlushDiskType,
    FlushKeys,
    HaKeys,
    IndexKeys,
    NodeKeys,
    PutKeys,
    ReadKeys,
    StoreKeys,
    TlsMode,
    TowlineKeys,
    live_keys,
    spellings,
)

SNAKES, CAMELS = spellings()
LIVE: Final = live_keys()
ENVIRONMENT: Final = "TOWLINE_"
FLAGS_SOURCE, ENVIRONMENT_SOURCE = "flags", "environment"
_VARIABLES: Final = {ENVIRONMENT + spelling.upper(): key for spelling, key in SNAKES.items()}
# Not settings: switches of the tests, and what Kubernetes sets in every pod beside a service that is called `towline`.
_FOREIGN_VARIABLES: Final = re.compile(
    r"TOWLINE_(KEYS|CONTEXT|REWRITE|REQUIRE|SEED|FAILPOINTS|CLOCK|SERVICE_HOST|SERVICE_PORT(_\w+)?"
    r"|PORT(_\d+_(TCP|UDP)\w*)?)"
)

_ENTRY: Final = 20  # a ConsumeQueue entry
SEGMENTS_MIN: Final = 4  # a log limited in bytes: the one being written, the next two, and one to read
_INDEX_HEADER, _INDEX_SLOT, _INDEX_ENTRY = 40, 4, 20
_HOST_AND_PORT: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:,=\[\]]+):\d{1,5}")
_DELAY_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_RATIO_BOUNDS: Final = {  # as RocketMQ keeps them
    "disk_max_used_space_ratio": (10, 95),
    "disk_space_clean_forcibly_ratio": (30, 85),
    "disk_space_warning_level_ratio": (35, 90),
}

_PATHS: Final = (
    "store_path_root_dir",
    "store_path_commit_log",
    "keys_dir",
    "tls_server_cert_path",
    "tls_server_key_path",
)


class Settings(
    NodeKeys,
    StoreKeys,
    FlushKeys,
    AllocateKeys,
    HaKeys,
    PutKeys,
    ReadKeys,
    IndexKeys,
    FilterKeys,
    CleanKeys,
    TowlineKeys,
):
    """Every key of a node, checked. Made by `read_settings`; by keyword in tests, where pydantic's errors come out."""

    ignored: tuple[str, ...] = Field((), description="keys of a broker.conf that mean nothing here")

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises BadSetting when `text` was not made by `to_json` of this version."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise _refusal(error, {}, "run/settings.json") from error

    def to_json(self) -> str:
        return self.model_dump_json(indent=1)

    @property
    def request_limit(self) -> int:
        """Most record bytes of a put request: it must fit into a segment together with a blank."""
        return min(self.request_size_max, self.mapped_file_size_commit_log - BLANK_SIZE_MIN)

    @property
    def peers(self) -> dict[int, str]:
        """`broker_id` -> host:port of the ha service, of every node of this name; empty where `ha_peers` is."""
        return parse_peers(self.ha_peers)

    @property
    def waits_for_slaves(self) -> bool:
        """Whether PUT_OK waits for somebody who follows: the in-sync set, or brokers of RocketMQ."""
        return self.broker_role is BrokerRole.SYNC_MASTER or self.rocketmq_ha_acks > 0

    @property
    def in_sync_floor(self) -> int:
        """Fewer nodes than these are never left in the in-sync set, and nothing counts as replicated below it."""
        return max(1, self.min_in_sync_replicas if self.enable_auto_in_sync_replicas else self.in_sync_replicas)

    @property
    def etcd_urls(self) -> list[str]:
        return parse_urls(self.etcd_endpoints)

    @property
    def scheduling(self) -> dict[str, Scheduling]:
        """By the name of a process; those that are not named are scheduled like any other."""
        return parse_scheduling(self.process_scheduling)

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """Delay of level 1, 2, ... in milliseconds."""
        return parse_delay_levels(self.message_delay_level)

    @property
    def remoting_addresses(self) -> list[tuple[str, int]]:
        """Where clients are listened to."""
        ports = self.listen_port, self.fast_listen_port, self.name_server_port
        return [(self.listen_host, port) for port in ports if port]

    @property
    def store_port(self) -> int:
        """The port in records' STOREHOST, and so in the ids that clients make of them: there they ask for a message."""
        return self.listen_port

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_a_role(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given  # pydantic says so itself
        role = given.get("broker_role")
        role = role.value if isinstance(role, BrokerRole) else role
        if role == BrokerRole.SLAVE.value:
            given = {"broker_id": 1} | given
        promoted = given.get("promoted_role")
        promoted = promoted.value if isinstance(promoted, BrokerRole) else promoted
        if BrokerRole.SYNC_MASTER.value in (role, promoted):
            given = {"in_sync_replicas": 2} | given
        if role in (BrokerRole.SYNC_MASTER.value, BrokerRole.ASYNC_MASTER.value):
            given = {"promoted_role": role} | given
        elif str(given.get("in_sync_replicas", 1)) != "1":
            given = {"promoted_role": BrokerRole.SYNC_MASTER.value} | given
        return {"total_replicas": given.get("in_sync_replicas", 1)} | defaults_of_ports(given) | given

    @field_validator("*", mode="before")
    @classmethod
    def _a_switch_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation is int:
            raise ValueError("a number is wanted")
        return value

    @field_validator(*_PATHS)
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        try:
            return path and path.expanduser().absolute()
        except RuntimeError:
            raise ValueError("nobody of this name has a home directory here; write the path from / on") from None

    @field_validator("mapped_file_size_commit_log")
    @classmethod
    def _whole_pages(cls, size: int) -> int:
        if size % PAGE:
            raise ValueError(f"must be a multiple of {PAGE}; {size // PAGE * PAGE or PAGE} is the nearest below")
        return size

    @field_validator("mapped_file_size_consume_queue")
    @classmethod
    def _whole_entries(cls, size: int) -> int:
        return -(-size // _ENTRY) * _ENTRY

    @field_validator(*_RATIO_BOUNDS)
    @classmethod
    def _within_rocketmqs_bounds(cls, ratio: int, info: ValidationInfo) -> int:
        low, high = _RATIO_BOUNDS[str(info.field_name)]
        return min(max(ratio, low), high)

    @field_validator("message_delay_level")
    @classmethod
    def _delay_levels(cls, text: str) -> str:
        parse_delay_levels(text)
        return text

    @field_validator("etcd_endpoints")
    @classmethod
    def _urls(cls, text: str) -> str:
        parse_urls(text)
        return text

    @field_validator("ha_peers")
    @classmethod
    def _peers(cls, text: str) -> str:
        parse_peers(text)
        return text

    @field_validator("process_scheduling")
    @classmethod
    def _scheduling(cls, text: str) -> str:
        parse_scheduling(text)
        return text

    @field_validator("seed")
    @classmethod
    def _seed(cls, text: str) -> str:
        return str(parse_seed(text))

    @field_validator("delete_when")
    @classmethod
    def _hours(cls, text: str) -> str:
        if not re.fullmatch(r"([01]\d|2[0-3])(;([01]\d|2[0-3]))*", text, re.ASCII):
            raise ValueError("hours from 00 to 23 are wanted, `;` between them")
        return text

    @field_validator("broker_ip1")
    @classmethod
    def _address(cls, text: str) -> str:
        return str(ipaddress.ip_address(text))

    @field_validator("ha_master_address", "rocketmq_master_address", "rocketmq_master_broker", mode="before")
    @classmethod
    def _host_and_port(cls, text: Any) -> Any:
        if isinstance(text, str) and text:
            text = text.removeprefix("tcp://")  # as `status` shows the master's endpoint
            if not _HOST_AND_PORT.fullmatch(text):
                raise ValueError("host:port is wanted, such as 10.0.0.7:10912")
        return text or None

    @model_validator(mode="after")
    def _relations(self) -> Self:
        for keys, why in _broken_relations(self):
            blamed = next((key for key in keys if key in self.model_fields_set), keys[0])
            raise PydanticCustomError("relation", "{why}", {"key": blamed, "why": why})
        return self


def _broken_tls(s: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    if s.tls_server_mode is TlsMode.DISABLED and s.keys_dir is not None and s.listen_port:
        yield ("tls_server_mode",), "DISABLED keeps out who has a key file of keys_dir, and so TLS: leave it out"
    certificate, private = s.tls_server_cert_path, s.tls_server_key_path
    if (certificate is None) != (private is None):
        yield ("tls_server_cert_path", "tls_server_key_path"), "go together: a certificate, and its private key"
    elif certificate is None and s.keys_dir is None and s.tls_server_mode is TlsMode.ENFORCING:
        why = "ENFORCING needs a certificate: set keys_dir, which has one, or tls_server_cert_path and its key"
        yield ("tls_server_mode",), why


def _broken_relations(s: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    """(keys, why they cannot stand together). The first of them that was given is the one to blame."""
    if s.transient_store_pool_enable and s.flush_disk_type is FlushDiskType.SYNC_FLUSH:
        yield ("transient_store_pool_enable",), "cannot be beside SYNC_FLUSH: what is in the pool is not on disk"
    if s.enable_calc_filter_bit_map and not s.enable_consume_queue_ext:
        yield ("enable_calc_filter_bit_map",), "needs enable_consume_queue_ext: the units hold the bitmaps"
    if s.force_verify_prop_crc and not s.check_crc_on_recover:
        yield ("force_verify_prop_crc",), "needs check_crc_on_recover: it says which CRC recovery insists on"
    if s.shared_memory_puts_size & (s.shared_memory_puts_size - 1):
        yield ("shared_memory_puts_size",), "must be a power of two"
    if not is_loopback(s.listen_host) and s.keys_dir is None and not s.insecure:
        why = "is not loopback, and a port that other machines reach needs keys: make them with "
        how = "`towline keys new NAME --dir DIR --role ROLE` and set keys_dir to DIR, or set insecure=true"
        yield ("listen_host",), why + how
    yield from _broken_tls(s)
    yield from _broken_roles(s)
    commit_log = s.store_path_root_dir / "commitlog"
    if s.store_path_commit_log not in (None, commit_log):
        yield ("store_path_commit_log",), f"must be {commit_log}, on the disk of the store root"
    yield from broken_ports(dict(s))
    if _INDEX_HEADER + _INDEX_SLOT * s.max_hash_slot_num + _INDEX_ENTRY * s.max_index_num > INT32_MAX:
        yield ("max_index_num", "max_hash_slot_num"), f"an index file is at most {INT32_MAX} bytes, as in RocketMQ"
    if 0 < s.file_reserved_bytes < SEGMENTS_MIN * s.mapped_file_size_commit_log:
        least = SEGMENTS_MIN * s.mapped_file_size_commit_log
        yield ("file_reserved_bytes",), f"must be 0 or at least {least}, so that {SEGMENTS_MIN} segments find room"
    record = s.max_message_size + RECORD_OVERHEAD_MAX
    for small, large, large_value in (
        ("max_message_size", "request_size_max", s.request_size_max - RECORD_OVERHEAD_MAX),
        ("max_message_size", "pull_bytes_max", s.pull_bytes_max - RECORD_OVERHEAD_MAX),
        ("request_size_max", "flush_backlog_max", s.flush_backlog_max),
        ("ha_transfer_batch_size", "ha_window_bytes", s.ha_window_bytes),
        ("min_in_sync_replicas", "in_sync_replicas", s.in_sync_replicas),
        ("in_sync_replicas", "total_replicas", s.total_replicas),
        ("disk_space_clean_forcibly_ratio", "disk_space_warning_level_ratio", s.disk_space_warning_level_ratio),
    ):
        if getattr(s, small) > large_value:
            least = record if small == "max_message_size" else getattr(s, small)
            yield (large, small), f"{large} must be at least {least} beside {small} {getattr(s, small)}"


def _broken_roles(s: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    if BrokerRole.SYNC_MASTER in (s.broker_role, s.promoted_role) and s.in_sync_replicas == 1:
        yield ("in_sync_replicas",), "SYNC_MASTER waits for at least one slave: 2 or more, or broker_role ASYNC_MASTER"
    if BrokerRole.ASYNC_MASTER in (s.broker_role, s.promoted_role) and 1 < s.min_in_sync_replicas <= s.in_sync_replicas:
        why = "ASYNC_MASTER waits for no slave, so it cannot promise that more than one node holds a message: "
        yield ("min_in_sync_replicas", "broker_role", "promoted_role"), why + "SYNC_MASTER, or 1"
    yield from _broken_rocketmq_master(s)
    if s.promoted_role is BrokerRole.SLAVE:
        yield ("promoted_role",), "who is promoted is a master: ASYNC_MASTER or SYNC_MASTER"
    if s.broker_role is BrokerRole.SLAVE and s.broker_id == 0 and not s.ha_peers:
        yield ("broker_id",), "0 is the master's; give each slave its own number, or all nodes in ha_peers"
    if s.ha_peers and s.broker_id not in s.peers:
        yield ("broker_id", "ha_peers"), f"ha_peers names every node of the name, but not {s.broker_id}, this one"
    if s.etcd_endpoints and not s.ha_peers:
        yield (
            ("etcd_endpoints", "ha_peers"),
            "needs ha_peers: who stands for the leadership asks the others how far they are",
        )
    if bool(s.etcd_user) != bool(s.etcd_password_file):
        yield ("etcd_user", "etcd_password_file"), "a user of etcd has a password: give both, or none"
    if s.etcd_key_file and not s.etcd_cert_file:
        yield ("etcd_key_file", "etcd_cert_file"), "a key belongs to a certificate"


def _broken_rocketmq_master(s: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    keys = ("rocketmq_master_address", "rocketmq_master_broker")
    given = [name for name in keys if getattr(s, name) is not None]
    if len(given) == 1:
        yield (*given, *keys), "go together: the broker's haListenPort, and its listenPort"
    if given and (s.ha_master_address is not None or s.ha_peers):
        why = "is the only master of a node that follows RocketMQ's: leave out ha_master_address and ha_peers"
        yield (*given, "ha_master_address", "ha_peers"), why
    if given and s.seed not in ("oldest", "last"):
        yield ("seed", *given), "is oldest or last beside a master of RocketMQ: where else it begins cannot be asked"
    if given and s.seed_byte_in_second:
        why = "cannot be asked of a master of RocketMQ: its own haFlowControlEnable says how fast it sends"
        yield ("seed_byte_in_second", *given), why


def parse_peers(text: str) -> dict[int, str]:
    """`0=10.0.0.7:10912, 1=10.0.0.8:10912` -> {0: "10.0.0.7:10912", ...}. Raises ValueError."""
    peers: dict[int, str] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        number, mark, address = (part.strip() for part in word.partition("="))
        if not (mark and number.isdecimal() and _HOST_AND_PORT.fullmatch(address)):
            raise ValueError(f"{word!r} is no id=host:port, such as 0=10.0.0.7:10912")
        if int(number) > NODE_MAX:
            raise ValueError(f"{number} is no number of a node: 0 to {NODE_MAX}")
        if int(number) in peers or address in peers.values():
            raise ValueError(f"{word!r} names a node or an address that was named before")
        peers[int(number)] = address
    return peers


def parse_urls(text: str) -> list[str]:
    """`http://10.0.0.7:2379, https://etcd:2379` -> both. Raises ValueError."""
    urls = [word for part in text.split(",") if (word := part.strip().rstrip("/"))]
    for url in urls:
        scheme, mark, address = url.partition("://")
        if not (mark and scheme in ("http", "https") and _HOST_AND_PORT.fullmatch(address)):
            raise ValueError(f"{url!r} is no address of etcd, such as http://10.0.0.7:2379")
    return urls


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """`1s 5m` -> (1000, 300000). Raises ValueError."""
    levels = []
    for word in text.split():
        found = re.fullmatch(r"([1-9]\d*)([smhd])", word)
        if not found:
            raise ValueError(f"{word!r} is no delay; write a number and s, m, h or d")
        levels.append(int(found[1]) * _DELAY_UNITS_MS[found[2]])
        if levels[-1] > 1000 * DELAY_MAX_S:
            raise ValueError(f"{word!r} is too far away; {DELAY_MAX_S // DAY_S}d is the longest delay")
    if not levels:
        raise ValueError("at least one delay is wanted")
    return tuple(levels)


def read_settings(file: Path | None, flags: Mapping[str, object], environment: Mapping[str, str]) -> Settings:
    """The settings of a node without what was kept in its store. A flag that is None was not given.

    Raises UnknownSetting, BadSetting (both name the source), UnreadableSettings.
    """
    return read_sources(file, None, flags, environment)[0]


def read_sources(
    file: Path | None, kept: Path | None, flags: Mapping[str, object], environment: Mapping[str, str]
) -> tuple[Settings, dict[str, str]]:
    """The settings of a node, and the source of each that is not by default. `kept`: that file of its store, which need
    not exist. Raises what `read_settings` raises."""
    ignored: list[str] = []
    given: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for source, spelled, known in (
        _from_file(file, ignored),
        _from_file(kept if kept is not None and kept.exists() else None, ignored),
        (ENVIRONMENT_SOURCE, _from_environment(environment, ignored), _VARIABLES),
        (FLAGS_SOURCE, {key: value for key, value in flags.items() if value is not None}, SNAKES),
    ):
        found = _resolve(spelled, known, source)
        given |= found
        sources |= dict.fromkeys(found, source)
    try:
        return Settings(**given, ignored=tuple(sorted(ignored))), sources
    except ValidationError as error:
        raise _refusal(error, sources, "defaults") from error


def change_of(settings: Settings, changes: Mapping[str, object]) -> dict[str, Any]:
    """The checked values of `changes` at run time, by key. Keys that cannot change then are left out where they have
    the value already.

    Raises UnknownSetting, BadSetting, and FixedSetting naming every key that cannot change while a node runs.
    """
    source = "the change"
    wanted = _resolve(changes, SNAKES, source)
    try:
        checked = Settings.model_validate(settings.model_dump() | wanted)
    except ValidationError as error:
        raise _refusal(error, {}, source) from error
    fixed = [key for key in wanted.keys() - LIVE.keys() if getattr(checked, key) != getattr(settings, key)]
    own = settings.broker_id
    if "ha_peers" in wanted and checked.peers.get(own) != settings.peers.get(own):
        fixed.append("ha_peers of this node itself")
    if fixed:
        raise FixedSetting(", ".join(sorted(fixed)))
    return {key: getattr(checked, key) for key in wanted if key in LIVE}


def check_kept(base: Mapping[str, Any], sources: Mapping[str, str], kept: Mapping[str, object]) -> "Settings":
    """The settings of the next start, which has the sources of this one, with this in kept.toml. `base`: by key what
    it goes by where nothing is kept. Raises UnknownSetting, BadSetting."""
    source = "the next start"
    wins = _resolve(kept, SNAKES, source)
    wins = {key: value for key, value in wins.items() if sources.get(key) not in (FLAGS_SOURCE, ENVIRONMENT_SOURCE)}
    try:
        return Settings.model_validate({**base, **wins})
    except ValidationError as error:
        raise _refusal(error, {}, source) from error


def beneath_kept(file: Path | None, kept: Path, sources: Mapping[str, str]) -> dict[str, Any]:
    """Of each key that has its value by `kept`, what the file of settings says, or its default where that says nothing;
    not checked. Raises what `read_sources` raises."""
    if not kept.exists():
        return {}
    _, said, known = _from_file(file, [])
    below = _resolve(said, known, str(file))
    keys = (key for key, source in sources.items() if source == str(kept))
    return {key: below[key] if key in below else Settings.model_fields[key].get_default() for key in keys}


def _from_file(file: Path | None, ignored: list[str]) -> tuple[str, Mapping[str, Any], Mapping[str, str]]:
    """(source, what it says, the spellings it may use). What RocketMQ knows and Towline has no use for is `ignored`."""
    if file is None:
        return "no file", {}, SNAKES
    if file.suffix != ".toml":
        said = read_broker_conf(file)
        useless = NOT_APPLICABLE & said.keys()
        ignored += useless
        return str(file), {key: value for key, value in said.items() if key not in useless}, CAMELS
    return str(file), read_toml(file), SNAKES


def read_toml(file: Path) -> dict[str, Any]:
    """What a file of settings says, by its own spellings and unchecked. Raises UnreadableSettings."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableSettings(str(file), error.strerror or str(error)) from error
    except ValueError as error:  # not TOML, or not UTF-8
        raise UnreadableSettings(str(file), str(error)) from error


def _from_environment(environment: Mapping[str, str], ignored: list[str]) -> dict[str, str]:
    said = {name: value for name, value in environment.items() if name.startswith(ENVIRONMENT)}
    foreign = [name for name in said if _FOREIGN_VARIABLES.fullmatch(name)]
    ignored += foreign
    return {name: value for name, value in said.items() if name not in foreign}


def _resolve(spelled: Mapping[str, Any], known: Mapping[str, str], source: str) -> dict[str, Any]:
    """Key -> value, from one source's spellings. Two spellings of one key are refused."""
    resolved: dict[str, Any] = {}
    for spelling, value in spelled.items():
        if spelling not in known:
            raise unknown_setting(spelling, source, known)
        key = known[spelling]
        if key in resolved:
            raise BadSetting(spelling, str(value), source, f"the key is given twice: it is an old spelling of {key}")
        resolved[key] = value
    return resolved


def unknown_setting(spelling: str, source: str, known: Mapping[str, str] = SNAKES) -> UnknownSetting:
    return UnknownSetting(spelling, source, _nearest(spelling, known))


def _nearest(spelling: str, known: Mapping[str, str]) -> str:
    """The known spelling that looks most like this one, whatever its case; "" when none does."""
    lower = {name.lower(): name for name in known}
    flat = {name.lower().replace("_", ""): name for name in known}
    near = difflib.get_close_matches(spelling.lower(), lower, 1)
    near_flat = difflib.get_close_matches(spelling.lower().replace("_", ""), flat, 1, cutoff=0.9)
    return flat[near_flat[0]] if near_flat else lower[near[0]] if near else ""


def _refusal(error: ValidationError, sources: Mapping[str, str], otherwise: str) -> BadSetting:
    """The first of pydantic's complaints, as ours. A broken relation names its key itself."""
    first = error.errors()[0]
    context = first.get("ctx", {})
    key = str(context["key"]) if first["type"] == "relation" else ".".join(map(str, first["loc"]))
    value = first["input"]
    if first["type"] == "relation" and isinstance(value, Mapping):
        value = value.get(key, "as by default")
    why = first["msg"].removeprefix("Value error, ")
    return BadSetting(key, getattr(value, "value", None) or str(value), sources.get(key, otherwise), why)
