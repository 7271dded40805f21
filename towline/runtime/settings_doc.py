"""docs/settings.md, made from the settings model: `python -m towline.runtime.settings_doc docs/settings.md`."""

import sys
from enum import Enum
from pathlib import Path
from typing import Final

from .settings_model import GROUPS, Group, camel, facts_of

HEAD: Final = """\
# Settings

Made from the model by `python -m towline.runtime.settings_doc docs/settings.md`; a test keeps it true.

A value comes from the first of these that has it:

1. a flag of the command (`--listen-port 10911`);
2. the environment (`TOWLINE_LISTEN_PORT=10911`);
3. what was kept at run time: `kept.toml` in the store, which `towline config set --keep` writes;
4. a file: TOML with the keys below (`listen_port = 10911`), or a real `broker.conf` with RocketMQ's keys
   (`listenPort=10911`);
5. the default.

**At run time** those keys change whose last column names processes: they have the new value when `towline config set
KEY=VALUE` returns, without a restart ([operations.md](operations.md#settings-of-a-running-node)). All others are read
when the node starts.

An unknown key is refused in each of them, and the nearest right one is named. Keys of RocketMQ that mean nothing to
Towline (name servers, thread pools, DLedger, RocksDB, timers) are accepted in a `broker.conf` and listed as ignored.
A broker.conf may also hold Towline's own keys, in RocketMQ's way of spelling (`keysDir`).

Where SYNC_MASTER is set, `in_sync_replicas` is 2 unless it is given; where SLAVE is set, `broker_id` is 1. A put
request is never larger than a segment, whatever `request_size_max` says.

All clients come to `listen_port`. Beyond loopback it takes TLS alone, with the certificate of the ring in `keys_dir`,
unless `insecure` is set. `name_server_port` and `fast_listen_port` are RocketMQ's numbers beside RocketMQ's own
`listen_port`, 10911, and 0 beside every other one, so that two nodes of one machine differ by `listen_port` and
`ha_listen_port` alone.
"""


def render() -> str:
    """The whole page."""
    return "\n".join([HEAD, *map(_table, GROUPS)])


def _table(group: type[Group]) -> str:
    rows = "\n".join(_row(group, name) for name in group.model_fields)
    head = "| key | default | in a broker.conf | meaning | at run time |\n|---|---|---|---|---|"
    return f"## {group.title}\n\n{head}\n{rows}\n"


def _row(group: type[Group], name: str) -> str:
    field, facts = group.model_fields[name], facts_of(group, name)
    spellings = [facts["rocketmq"] or camel(name), facts["old"]]
    theirs = ", ".join(f"`{spelling}`" for spelling in spellings if spelling)
    return f"| `{name}` | {_default(field.default)} | {theirs} | {field.description} | {facts['live'] or '-'} |"


def _default(value: object) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, Enum):
        value = value.value
    return f"`{value}`"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")
