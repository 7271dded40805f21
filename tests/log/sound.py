"""A small store with every kind of file, closed cleanly and without a fault."""

import shutil
from pathlib import Path

from towline.format.files.checkpoint import Checkpoint
from towline.log.files.config_file import ConfigFile
from towline.log.recovery.recovery import RecoverySettings
from towline.log.repair.repair import Repair
from towline.log.repair.repair_plan import RepairPlan, Step, make_plan
from towline.log.repair.verify import Verified, verify
from towline.log.repair.verify_report import Finding
from towline.log.state.checkpoint_file import CheckpointFile
from towline.log.state.identity import IdentityFile

from .stores import SETTINGS, StoreMaker


def state_files(maker: StoreMaker) -> None:
    """Everything beside log, queues and index, as a clean stop leaves it."""
    maker.durable(maker.end, queues=maker.end)
    last = maker.records[-1].timestamp if maker.records else 0
    CheckpointFile(maker.root).save(Checkpoint(last, last, 0, 0, maker.end))
    IdentityFile(maker.root).create("DefaultCluster")
    maker.store.config.mkdir(exist_ok=True)
    for name in ("topics.json", "consumerOffset.json"):
        file = ConfigFile(maker.store.config / name)
        file.save(content_of(name, 3))
        file.save(content_of(name, 4))
    (maker.root / "abort").unlink()


def content_of(name: str, number: int) -> dict[str, object]:
    if name == "topics.json":
        topics = {
            topic: {"topicName": topic, "readQueueNums": number, "writeQueueNums": number}
            for topic in ("TopicA", "TopicB")
        }
        return {"dataVersion": {"counter": number}, "topicConfigTable": topics}
    return {"offsetTable": {"TopicA@g1": {"0": number, "1": 7}}}


def sound_store(root: Path, count: int = 300, size: int = 400, *, with_crc: bool = False) -> StoreMaker:
    maker = StoreMaker(root, with_crc=with_crc)
    maker.fill(count, size)
    maker.dispatch(maker.end)
    state_files(maker)
    return maker


def copy_of(maker: StoreMaker, root: Path) -> StoreMaker:
    """The same store somewhere else, to be damaged."""
    shutil.copytree(maker.root, root)
    other = object.__new__(StoreMaker)
    other.root, other.base, other.end, other.with_crc = root, maker.base, maker.end, maker.with_crc
    other.records, other.blanks = list(maker.records), list(maker.blanks)
    return other


def look(maker: StoreMaker, settings: RecoverySettings = SETTINGS) -> Verified:
    return verify(maker.store, settings)


def rules(verified: Verified) -> list[str]:
    """Of every row that is more than a note."""
    return [row.rule for row in verified.findings.rows if row.weight]


def of_file(verified: Verified, path: Path) -> list[Finding]:
    name = str(path.relative_to(verified.findings.root))
    return [row for row in verified.findings.rows if row.path == name]


def plan_of(maker: StoreMaker, *skip: int) -> RepairPlan:
    return make_plan(maker.store, SETTINGS, skip)


def mend_all(maker: StoreMaker, *skip: int) -> list[Step]:
    return Repair(maker.store, SETTINGS, plan_of(maker, *skip)).run()
