"""The words of a command line as choices of an export, for the command and the job alike."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from towline.kafka.format.batch import Compression
from towline.kafka.format.partition_metadata import id_of
from towline.kafka.log.rolling import LogConfig

from .export_choice import ExportChoices, Treated
from .export_errors import BadChoice
from .export_partition import PartitionForm

COMPRESSIONS: Final = tuple(kind.name.lower() for kind in Compression)
SEGMENT_MAX: Final = 2**31 - 1
_ID: Final = re.compile(r"[\w-]{22}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was typed. `renames` are OLD=NEW, `topic_ids` TOPIC=ID; sizes are bytes."""

    store: Path
    topics: Sequence[str] = ()
    out: Path | None = None
    into: Path | None = None
    renames: Sequence[str] = ()
    topic_ids: Sequence[str] = ()
    compression: str = "none"
    batch_bytes: int = PartitionForm().batch_bytes
    segment_bytes: int = LogConfig().segment_bytes
    damaged: Treated = "refuse"
    undelivered: Treated = "leave-out"

    def choices(self) -> ExportChoices:
        """Raises BadChoice."""
        if (self.out is None) == (self.into is None):
            raise BadChoice("out", "one of --out and --into says where to")
        if self.batch_bytes > self.segment_bytes:
            raise BadChoice("batch-bytes", f"a batch is not larger than a segment of {self.segment_bytes} bytes")
        form = PartitionForm(
            compression=Compression[self.compression.upper()],
            batch_bytes=self.batch_bytes,
            segment_bytes=self.segment_bytes,
        )
        return ExportChoices(
            store=self.store,
            topics=tuple(self.topics),
            out=self.out,
            into=self.into,
            renames=dict(_pair("rename", each) for each in self.renames),
            topic_ids={topic: _id(text) for topic, text in (_pair("topic-id", each) for each in self.topic_ids)},
            form=form,
            damaged=self.damaged,
            undelivered=self.undelivered,
        )


def _pair(option: str, text: str) -> tuple[str, str]:
    left, _, right = text.partition("=")
    if not (left and right):
        wanted = "OLD=NEW" if option == "rename" else "TOPIC=ID"
        raise BadChoice(option, f"{text!r} is not {wanted}")
    return left, right


def _id(text: str) -> UUID:
    if not _ID.fullmatch(text):
        raise BadChoice("topic-id", f"{text!r} is no id of 22 characters, as `kafka-topics.sh --describe` shows it")
    return id_of(text)
