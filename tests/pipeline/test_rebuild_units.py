"""`rebuild` of a store with ConsumeQueueExt: queues and units byte for byte as reput writes them. Without a JVM."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.log.stores import SEGMENT, StoreMaker
from tests.reput.test_reput import Bench
from towline.errors import MalformedFile
from towline.filter.bloom import Bloom
from towline.filter.subscriptions import FilterTable
from towline.format.files.consume_queue_ext import END
from towline.log.files.config_file import ConfigFile
from towline.pipeline import rebuild as job
from towline.pipeline.rebuild import RebuildOptions, rebuild
from towline.places import Store

from .logs import DELAYS, PlainTasks, Sent, Writer
from .stores import shape
from .test_rebuild import FIRST, derived, with_deleted

EXT_FILE = 400
ON = {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": EXT_FILE}
MAPPED = ON | {"enable_calc_filter_bit_map": True}
LOG = [Sent("plain", n % 6, 300, ("k", f"k{n}"), ("red", "", "blue")[n % 3]) for n in range(300)]
LOG[100] = Sent("lost", 1, 0, count=20)
LOG[200:200] = [Sent(kind, 3, 300, ("x",)) for kind in ("half", "rollback", "commit", "delayed", "lost")]


@pytest.fixture(autouse=True)
def _small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "SPLIT_BYTES", SEGMENT // 8)


def files_of(store: Store) -> dict[str, bytes]:
    """Queues and units by name."""
    queues, _ = derived(store.root)
    units = store.consumequeue_ext
    return queues | {
        f"ext/{path.relative_to(units)}": path.read_bytes() for path in sorted(units.rglob("*")) if path.is_file()
    }


def subscribed(store: Store) -> None:
    """Two groups filter Topic0, as serve saves them."""
    table = FilterTable(Bloom())
    for group, expression in {"reds": "TAGS = 'red'", "keyed": "KEYS = 'k k1' OR TAGS IS NULL"}.items():
        table.register(group, "Topic0", expression, now=1)
    store.config.mkdir(exist_ok=True)
    ConfigFile(store.config / "consumerFilter.json").save(table.content())


def by_reput(root: Path, settings: dict[str, Any], *, deleted: bool = False) -> dict[str, bytes]:
    bench = Bench(root, message_delay_level=DELAYS, **settings)
    Writer(bench.maker, FIRST).send(*LOG)
    subscribed(bench.store)
    if deleted:
        with_deleted(bench.store, bench.maker.end)
    bench.publish(bench.maker.end)
    bench.work(bench.agent())
    return files_of(bench.store)


def prepared(root: Path, settings: dict[str, Any]) -> StoreMaker:
    """The same log in a store whose node had these settings."""
    maker = StoreMaker(root)
    shape(maker.store)
    known = json.loads(maker.store.settings.read_text()) | settings
    maker.store.settings.write_text(json.dumps(known), encoding="utf-8")
    Writer(maker, FIRST).send(*LOG)
    subscribed(maker.store)
    return maker


def run(store: Store, tasks: PlainTasks, **options: Any) -> None:
    rebuild(RebuildOptions(store=str(store.root), **options), tasks)


@pytest.mark.parametrize("settings", [ON, MAPPED], ids=["units", "bitmaps"])
def test_queues_and_units_are_those_of_reput(tmp_path: Path, settings: dict[str, Any]) -> None:
    wanted = by_reput(tmp_path / "reput", settings)
    assert sum(name.startswith("ext/Topic0/0/") for name in wanted) > 1
    assert END in wanted[f"ext/Topic0/0/{0:020d}"]
    assert not any("SCHEDULE" in name for name in wanted if name.startswith("ext/"))
    maker = prepared(tmp_path / "job", settings)
    for tasks in (PlainTasks(), PlainTasks(doubled=True), PlainTasks(parallel=1)):
        run(maker.store, tasks, old="remove")
        assert files_of(maker.store) == wanted


def test_a_slaves_units_have_no_bitmaps(tmp_path: Path) -> None:
    wanted = by_reput(tmp_path / "reput", ON)
    maker = prepared(tmp_path / "job", MAPPED | {"broker_role": "SLAVE"})
    run(maker.store, PlainTasks())
    assert files_of(maker.store) == wanted


def test_a_deleted_topics_queues_leave_no_units(tmp_path: Path) -> None:
    maker = prepared(tmp_path / "job", ON)
    with_deleted(maker.store, maker.end)
    run(maker.store, PlainTasks())
    queues = {path.relative_to(maker.store.consumequeue) for path in maker.store.consumequeue.glob("*/*")}
    units = {path.relative_to(maker.store.consumequeue_ext) for path in maker.store.consumequeue_ext.glob("*/*")}
    assert units
    assert units <= queues


def test_of_a_real_broker_units_are_made_where_it_had_some(tmp_path: Path) -> None:
    """Nothing but its files tells."""
    wanted = by_reput(tmp_path / "reput", ON)
    maker = prepared(tmp_path / "job", ON)
    run(maker.store, PlainTasks(), parts="queues")
    maker.store.settings.unlink()
    run(maker.store, PlainTasks(), parts="queues")
    found = files_of(maker.store)
    assert found.keys() == wanted.keys()
    for name in wanted:
        assert found[name] == wanted[name] or "SCHEDULE" in name, "its delay levels are not known"


def test_the_index_alone_leaves_the_units(tmp_path: Path) -> None:
    maker = prepared(tmp_path / "job", ON)
    run(maker.store, PlainTasks())
    before = files_of(maker.store)
    run(maker.store, PlainTasks(), parts="index")
    assert files_of(maker.store) == before
    assert not list((maker.store.root / "diverged").glob("*consumequeue*"))


def test_subscriptions_that_cannot_be_read_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    maker = prepared(tmp_path / "job", MAPPED)
    ConfigFile(maker.store.config / "consumerFilter.json").save({"filterDataByTopic": 5})
    before = files_of(maker.store)
    with pytest.raises(MalformedFile, match=r"consumerFilter\.json"):
        run(maker.store, PlainTasks())
    assert files_of(maker.store) == before
    assert not list(maker.store.staging.glob("rebuild-*"))
