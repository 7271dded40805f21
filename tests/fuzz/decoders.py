"""Which functions of the product read bytes of others, by their names; and why no target calls some of them."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .running import ROOT

# Where bytes of files and connections are first looked at. A directory stands for all modules in it.
PLACES: Final = (
    "towline/format",
    "towline/kafka/format",
    "towline/kafka/log",
    "towline/filter",
    "towline/link",
    "towline/replication",
    "towline/log/state",
    "towline/log/files",
    "towline/log/backup",
    "towline/client/columns.py",
    "towline/client/read",
    "towline/client/link",
    "towline/kernels/scan",
    "towline/kernels/put",
    "towline/kernels/remoting",
    "pipeline/archive_manifest.py",
    "serve/groups/offsets.py",
    "serve/groups/request_modes.py",
    "towline/node/roles/agreement.py",
    "slave/rocketmq",
    "ha/rocketmq",
)
_WORDS: Final = (
    "decode",
    "read",
    "parse",
    "loads",
    "walk",
    "scan",
    "split",
    "newest",
    "of_form",
    "sendables",
    "content_of",
)
_EXACTLY: Final = (
    *(
        "frames",
        "parts",
        "members_of",
        "parts_of",
        "is_torn",
        "torn",
        "count_of",
        "checked",
        "expect_set",
        "frame_size",
    ),
    *("message_size", "decompress", "frames", "take", "whole", "parsed", "ends_of", "timers_file", "query", "gather"),
    *("append_rows", "serve_ring", "put_sends", "look", "make", "find_pairs", "leading_records", "rule_out", "of"),
    *("broken", "is_hole", "stored_message", "select", "bodies", "find"),
    *("rebuild_slots", "check_chains", "foreign_property_crcs"),
    *(
        "record_of",
        "report_of",
        "load_role",
        "load_minima",
        "load",
        "subscription_of",
        "json",
        "sent_back",
        "seen_topics",
        "real_topics_of_each",
    ),
)

_CALLS: Final = "opens a file and hands its bytes to a decoder that is a target"
_SOUND: Final = "takes apart what a target decoded before, in the same process"
_OWN: Final = "reads what this process or the operator wrote"
_MEMBER: Final = "asks for a member of what was read"
_STREAM: Final = (
    "takes bytes from a socket, whose frames are a target: tests/ha/rocketmq and tests/remoting send others"
)

LEFT_OUT: Final[dict[str, str]] = {
    **dict.fromkeys(
        (
            "towline.kafka.log.partition:Partition.read",
            "towline.kafka.log.partition:Partition.torn",
            "towline.log.backup.backup_check:walk_records",
            "towline.log.backup.backup_manifest:BackupDirectory.load",
            "towline.log.files.config_file:ConfigFile.load",
            "towline.log.files.mirrored_file:MirroredFile.load",
            "towline.log.files.mirrored_file:read_mirrored",
            "towline.log.state.checkpoint_file:CheckpointFile.load",
            "towline.log.state.durable_file:DurableFile.load",
            "towline.log.state.epoch_file:EpochFile.load",
            "towline.log.state.in_sync_file:InSyncFile.load",
            "towline.log.state.queue_minima:read_minima",
            "towline.log.state.topics_file:read_table",
            "towline.pipeline.archive_manifest:Archive.make",
            "towline.pipeline.archive_manifest:read_manifest",
        ),
        _CALLS,
    ),
    **dict.fromkeys(
        (
            "towline.client.columns:Columns.select",
            "towline.client.read.follower:Follower.take",
            "towline.client.read.log_tail:LogTail.of",
            "towline.client.read.log_tail:LogTail.read",
            "towline.link.log_files:FileRegion.read",
            "towline.link.log_files:LogFiles.of",
            "towline.link.log_files:LogFiles.read",
            "towline.kafka.format.building:split",
            "towline.kafka.format.records:Blobs.of",
            "towline.kafka.format.records:Records.of",
            "towline.serve.groups.offsets:Offsets.load",
        ),
        _SOUND,
    ),
    **dict.fromkeys(
        (
            "towline.kafka.log.log_directory:make",
            "towline.link.keys:read_key",
            "towline.link.permissions:read_roles",
            "towline.log.files.mapped_file_queue:MappedFileQueue.load",
            "towline.log.files.store_files:IndexShape.of",
        ),
        _OWN,
    ),
    **dict.fromkeys(
        (
            "towline.kafka.format.compression:_Stream.decompress",
            "towline.link.permissions:Limits.of",
            "towline.link.shares:PeerShares.find",
            "towline.log.files.mapped_file_queue:MappedFileQueue.find",
            "towline.replication.handshake:SlaveGreeting.newest",
        ),
        _MEMBER,
    ),
    "towline.ha.rocketmq.slave:Slave.read": _STREAM,
}


def is_decoder(name: str) -> bool:
    """Whether a function of this name reads bytes or what was parsed of them."""
    bare = name.removeprefix("_")
    return bare in _EXACTLY or any(bare == word or bare.startswith(f"{word}_") for word in _WORDS)


def every_decoder() -> Iterator[str]:
    """module:function, or module:Class.method, of each that is open to others."""
    for place in PLACES:
        path = ROOT / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            yield from _in(file)


def _in(file: Path) -> Iterator[str]:
    parts = file.relative_to(ROOT).with_suffix("").parts
    module = ".".join(parts if parts[0] == "towline" else ("towline", *parts))
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and _is_open(node.name):
            yield f"{module}:{node.name}"
        elif isinstance(node, ast.ClassDef):
            methods = [each.name for each in node.body if isinstance(each, ast.FunctionDef) and _is_open(each.name)]
            yield from (f"{module}:{node.name}.{name}" for name in methods)


def _is_open(name: str) -> bool:
    return not name.startswith("_") and is_decoder(name)
