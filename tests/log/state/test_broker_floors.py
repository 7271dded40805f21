"""Transactions go on where a RocketMQ broker stood that had the store last."""

from pathlib import Path

import pytest

from towline.log.files.config_file import ConfigFile
from towline.log.state.floors import adopt_transaction_floors
from towline.places import Store

BROKERS = (
    b'{"offsetTable":{"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:7},'
    b'"RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:3},"t@g":{0:9}}}'
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path)
    made.config.mkdir(parents=True)
    return made


def floors(store: Store) -> dict[str, int] | None:
    return ConfigFile(store.config / "transactionOffset.json").load()


def test_the_offsets_of_a_broker_are_taken_over_once(store: Store) -> None:
    path = store.config / "consumerOffset.json"
    path.write_bytes(BROKERS)
    assert adopt_transaction_floors(store, 1000)
    assert floors(store) == {"halfOffset": 7, "opOffset": 3, "towlineLogEnd": 1000}
    assert not adopt_transaction_floors(store, 2000), "nothing new"


def test_what_towline_saved_is_not_a_brokers_and_may_be_ahead_of_a_slaves_log(store: Store) -> None:
    path = store.config / "consumerOffset.json"
    path.write_bytes(BROKERS)
    file = ConfigFile(path)
    content = file.load()
    assert content is not None
    file.save(content)
    assert not adopt_transaction_floors(store, 1000)
    assert floors(store) is None


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"{}", b'{"offsetTable":[]}', b"\xff", b'{"offsetTable":{"a@b":1}}']
)
def test_where_there_is_nothing_to_read_nothing_is_taken_over(store: Store, text: bytes) -> None:
    (store.config / "consumerOffset.json").write_bytes(text)
    assert not adopt_transaction_floors(store, 1000)


def test_a_store_without_groups_has_nothing_to_take_over(store: Store) -> None:
    assert not adopt_transaction_floors(store, 1000)
