"""Settings: four sources, every key checked, nothing misspelt gets through."""

import pickle
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from towline.errors import BadSetting, UnknownSetting, UnreadableSettings
from towline.runtime.broker_conf import NOT_APPLICABLE
from towline.runtime.settings import Settings, parse_delay_levels, read_settings
from towline.runtime.settings_doc import render
from towline.runtime.settings_model import GROUPS, BrokerRole, FlushDiskType, snake, spellings

KIB = 1024
MIB = 1024 * KIB
PAGE_OF_DOCS = Path(__file__).parents[2] / "docs" / "settings.md"

# As the installation guides of RocketMQ 4.9 print it, with their old spellings.
BROKER_CONF = """\
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId = 0
namesrvAddr=10.0.0.1:9876;10.0.0.2:9876
brokerIP1=10.0.0.7
brokerIP2=10.0.0.7
# on disk before PUT_OK
flushDiskType=SYNC_FLUSH
brokerRole=SYNC_MASTER
mapedFileSizeCommitLog=65536
mapedFileSizeConsumeQueue=300000
storePathRootDir=/data/store
storePathCommitLog=/data/store/commitlog
storePathConsumeQueue=/data/store/consumequeue
haSlaveFallbehindMax=1048576
diskMaxUsedSpaceRatio=88
sendMessageThreadPoolNums=128
autoCreateTopicEnable=false
warmMapedFileEnable=true
checkCRCOnRecover=true
deleteWhen=04
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def refused(file: Path | None = None, environment: dict[str, str] | None = None, **flags: object) -> BadSetting:
    with pytest.raises(BadSetting) as raised:
        read_settings(file, flags, environment or {})
    return raised.value


class TestSources:
    def test_without_any_source_every_key_has_rocketmqs_default(self):
        settings = read_settings(None, {}, {})
        assert settings.mapped_file_size_commit_log == 1_073_741_824
        assert settings.mapped_file_size_consume_queue == 6_000_000
        assert settings.flush_disk_type is FlushDiskType.ASYNC_FLUSH
        assert settings.broker_role is BrokerRole.ASYNC_MASTER
        assert settings.flush_interval_commit_log == 500
        assert settings.max_index_num == 20_000_000
        assert settings.store_path_root_dir == Path.home() / "store"
        assert settings.ignored == ()

    def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(self, tmp_path):
        file = write(tmp_path / "node.toml", "listen_port = 1\nbroker_id = 2\nha_listen_port = 3\n")
        environment = {"TOWLINE_BROKER_ID": "20", "TOWLINE_HA_LISTEN_PORT": "30"}
        settings = read_settings(file, {"ha_listen_port": 300, "listen_port": None}, environment)
        assert (settings.listen_port, settings.broker_id, settings.ha_listen_port) == (1, 20, 300)
        assert settings.queues_max == 65_536

    def test_values_from_the_environment_are_text_and_become_what_the_key_is(self):
        environment = {"TOWLINE_FLUSH_DISK_TYPE": "SYNC_FLUSH", "TOWLINE_AUTO_CREATE_TOPIC_ENABLE": "false"}
        settings = read_settings(None, {}, environment)
        assert settings.flush_disk_type is FlushDiskType.SYNC_FLUSH
        assert settings.auto_create_topic_enable is False

    def test_other_variables_of_the_environment_are_not_looked_at(self):
        read_settings(None, {}, {"PATH": "/bin", "TOWLINER": "x", "TOWLINE": "y"})

    def test_what_kubernetes_sets_beside_a_service_called_towline_is_ignored_and_reported(self):
        environment = {
            "TOWLINE_PORT": "tcp://10.0.0.3:10911",
            "TOWLINE_SERVICE_HOST": "10.0.0.3",
            "TOWLINE_PORT_10911_TCP_ADDR": "10.0.0.3",
        }
        assert read_settings(None, {}, environment).ignored == tuple(sorted(environment))

    def test_a_relative_store_becomes_absolute(self):
        settings = read_settings(None, {"store_path_root_dir": "a/store"}, {})
        assert settings.store_path_root_dir == Path.cwd() / "a" / "store"


class TestBrokerConf:
    def test_a_real_one_is_read_with_its_old_spellings(self, tmp_path):
        settings = read_settings(write(tmp_path / "broker.conf", BROKER_CONF), {}, {})
        assert settings.broker_name == "broker-a"
        assert settings.broker_ip1 == "10.0.0.7"
        assert settings.flush_disk_type is FlushDiskType.SYNC_FLUSH
        assert settings.broker_role is BrokerRole.SYNC_MASTER
        assert settings.mapped_file_size_commit_log == 65_536
        assert settings.mapped_file_size_consume_queue == 300_000
        assert settings.ha_max_gap_not_in_sync == MIB
        assert settings.auto_create_topic_enable is False
        assert settings.delete_when == "04"

    def test_what_only_rocketmq_knows_is_ignored_and_reported(self, tmp_path):
        settings = read_settings(write(tmp_path / "broker.conf", BROKER_CONF), {}, {})
        assert settings.ignored == ("brokerIP2", "namesrvAddr", "sendMessageThreadPoolNums", "storePathConsumeQueue")

    def test_an_unknown_key_in_it_is_refused(self, tmp_path):
        file = write(tmp_path / "broker.conf", "flushDiskTyp=SYNC_FLUSH\n")
        with pytest.raises(UnknownSetting) as raised:
            read_settings(file, {}, {})
        assert raised.value.args == ("flushDiskTyp", str(file), "flushDiskType")

    def test_it_may_hold_towlines_own_keys(self, tmp_path):
        assert read_settings(write(tmp_path / "a.properties", "keysDir=/keys\n"), {}, {}).keys_dir == Path("/keys")

    def test_escapes_are_javas(self, tmp_path):
        file = write(tmp_path / "broker.conf", "brokerName=caf\\u00e9 \\\n  noir\n")
        assert read_settings(file, {}, {}).broker_name == "café noir"

    def test_no_key_is_both_ours_and_ignored(self):
        assert not NOT_APPLICABLE & spellings()[1].keys()


class TestUnknownKeys:
    @pytest.mark.parametrize(
        ("key", "nearest"),
        [
            ("listen_prt", "listen_port"),
            ("listenPort", "listen_port"),
            ("LISTEN_PORT", "listen_port"),
            ("flush_disc_type", "flush_disk_type"),
            ("maped_file_size_comit_log", "maped_file_size_commit_log"),
            ("zzz", ""),
        ],
    )
    def test_a_flag_is_refused_with_the_nearest_right_key(self, key, nearest):
        with pytest.raises(UnknownSetting) as raised:
            read_settings(None, {key: 1}, {})
        assert raised.value.args == (key, "flags", nearest)

    def test_a_variable_is_refused_with_the_nearest_right_variable(self):
        with pytest.raises(UnknownSetting) as raised:
            read_settings(None, {}, {"TOWLINE_LISTENPORT": "1"})
        assert raised.value.args == ("TOWLINE_LISTENPORT", "environment", "TOWLINE_LISTEN_PORT")

    def test_a_table_of_a_toml_file_is_no_key(self, tmp_path):
        with pytest.raises(UnknownSetting, match="'log' is not a setting"):
            read_settings(write(tmp_path / "node.toml", "[log]\nlisten_port = 1\n"), {}, {})

    def test_ignored_is_not_a_key(self):
        with pytest.raises(UnknownSetting):
            read_settings(None, {"ignored": ("a",)}, {})

    def test_the_old_and_the_new_spelling_at_once_are_refused(self, tmp_path):
        file = write(tmp_path / "node.toml", "mapped_file_size_commit_log = 8192\nmaped_file_size_commit_log = 4096\n")
        assert "given twice" in refused(file).why


class TestValues:
    @pytest.mark.parametrize(
        ("key", "value", "why"),
        [
            ("ha_listen_port", "ten", "integer"),
            ("ha_listen_port", 65_536, "65535"),
            ("ha_listen_port", True, "a number is wanted"),
            ("flush_disk_type", "SYNC", "'ASYNC_FLUSH' or 'SYNC_FLUSH'"),
            ("mapped_file_size_commit_log", 5000, "multiple of 4096"),
            ("mapped_file_size_commit_log", 2**31, "2147483647"),
            ("delete_when", "24", "hours"),
            ("delete_when", "0\u0664", "hours"),  # a digit, but none that Java or the next reader expects
            ("keys_dir", "~nobody-of-this-name/ring", "nobody of this name has a home directory"),
            ("broker_permission", 2, "greater than or equal to 4"),
            ("file_reserved_time", 2**63, "9223372036854775807"),
            ("clean_resource_interval", 2**63, "9223372036854775807"),
            ("file_reserved_bytes", 2**63, "9223372036854775807"),
            ("put_waiting_max", 2**63, "9223372036854775807"),
            ("process_scheduling", "allocate", "policy"),
            ("process_scheduling", "nobody=batch", "there is no process 'nobody'"),
            ("process_scheduling", "put=fifo", "other, batch, idle"),
            ("process_scheduling", "put=other:20", "-20 to 19"),
            ("process_scheduling", "put=other@0-1", "policy"),
            ("broker_ip1", "here", "IPv4 or IPv6"),
            ("ha_master_address", "10.0.0.7", "host:port"),
            ("message_delay_level", "1s 5x", "'5x' is no delay"),
            ("message_delay_level", "1s 3651d", "'3651d' is too far away; 3650d is the longest delay"),
            ("timer_max_delay_sec", 10 * 365 * 24 * 3600 + 1, "315360000"),
            ("queues_max", 0, "greater than or equal to 1"),
            ("broker_id", 63, "less than or equal to 62"),
            ("store_path_commit_log", "/elsewhere", "on the disk of the store root"),
        ],
    )
    def test_a_value_that_cannot_be_is_refused_with_its_key_and_the_reason(self, key, value, why):
        error = refused(**{key: value})
        assert (error.key, error.value, error.source) == (key, str(value), "flags")
        assert why in error.why

    def test_the_source_of_a_bad_value_is_named(self, tmp_path):
        file = write(tmp_path / "node.toml", "ha_listen_port = 'x'\n")
        assert refused(file).source == str(file)
        assert refused(environment={"TOWLINE_LISTEN_PORT": "x"}).source == "environment"

    def test_a_consume_queue_file_is_rounded_up_to_whole_entries(self):
        assert read_settings(None, {"mapped_file_size_consume_queue": 41}, {}).mapped_file_size_consume_queue == 60

    def test_disk_ratios_are_kept_within_rocketmqs_bounds(self):
        settings = read_settings(None, {"disk_space_warning_level_ratio": 99, "disk_max_used_space_ratio": 5}, {})
        assert (settings.disk_space_warning_level_ratio, settings.disk_max_used_space_ratio) == (90, 10)

    def test_delay_levels_are_milliseconds(self):
        assert parse_delay_levels("1s 2m 3h 4d") == (1000, 120_000, 10_800_000, 345_600_000)
        assert len(read_settings(None, {}, {}).delay_levels_ms) == 18

    def test_a_port_may_be_0_more_than_once(self):
        read_settings(None, {"ha_listen_port": 0}, {})


class TestRelations:
    def test_a_small_segment_lowers_the_request_limit_and_refuses_nothing(self):
        settings = read_settings(None, {"mapped_file_size_commit_log": 64 * KIB}, {})
        assert settings.request_limit == 64 * KIB - 8
        assert settings.request_size_max == 8 * MIB

    def test_with_whole_segments_the_request_limit_is_the_one_that_was_set(self):
        assert read_settings(None, {}, {}).request_limit == 8 * MIB

    def test_sync_master_waits_for_two_nodes_unless_told_otherwise(self):
        assert read_settings(None, {"broker_role": "SYNC_MASTER"}, {}).in_sync_replicas == 2
        three = read_settings(None, {"broker_role": BrokerRole.SYNC_MASTER, "in_sync_replicas": 3}, {})
        assert (three.in_sync_replicas, three.total_replicas) == (3, 3)
        assert read_settings(None, {}, {}).in_sync_replicas == 1

    def test_who_is_promoted_is_a_sync_master_where_two_nodes_are_waited_for(self):
        slave = {"broker_role": "SLAVE", "ha_peers": "0=a:1, 1=[::1]:2"}
        assert read_settings(None, slave, {}).promoted_role is BrokerRole.ASYNC_MASTER
        assert read_settings(None, slave | {"in_sync_replicas": "2"}, {}).promoted_role is BrokerRole.SYNC_MASTER
        assert read_settings(None, slave | {"promoted_role": "SYNC_MASTER"}, {}).in_sync_replicas == 2
        assert read_settings(None, {"broker_role": "SYNC_MASTER"}, {}).promoted_role is BrokerRole.SYNC_MASTER

    def test_peers_are_addresses_by_number(self):
        given = {"ha_peers": "0=a:1, 62=[::1]:2", "broker_id": "62", "broker_role": "SLAVE"}
        assert read_settings(None, given, {}).peers == {0: "a:1", 62: "[::1]:2"}
        assert read_settings(None, {}, {}).peers == {}

    @pytest.mark.parametrize(
        ("peers", "why"),
        [
            ("0=a", "'0=a' is no id=host:port"),
            ("a:1", "'a:1' is no id=host:port"),
            ("0=a:1,63=b:1", "63 is no number of a node"),
            ("0=a:1,0=b:1", "was named before"),
            ("0=a:1,1=a:1", "was named before"),
            ("1=a:1", "but not 0, this one"),
        ],
    )
    def test_peers_that_cannot_be_are_refused(self, peers, why):
        with pytest.raises(BadSetting, match=re.escape(why)):
            read_settings(None, {"ha_peers": peers}, {})

    def test_a_slave_has_number_1_unless_told_otherwise(self):
        assert read_settings(None, {"broker_role": "SLAVE"}, {}).broker_id == 1

    @pytest.mark.parametrize(
        ("flags", "blamed"),
        [
            ({"broker_role": "SYNC_MASTER", "in_sync_replicas": 1}, "in_sync_replicas"),
            ({"transient_store_pool_enable": True, "flush_disk_type": "SYNC_FLUSH"}, "transient_store_pool_enable"),
            ({"broker_role": "SLAVE", "broker_id": 0}, "broker_id"),
            ({"ha_listen_port": 10_911}, "ha_listen_port"),
            ({"max_message_size": 16 * MIB}, "max_message_size"),
            ({"pull_bytes_max": MIB}, "pull_bytes_max"),
            ({"flush_backlog_max": MIB}, "flush_backlog_max"),
            ({"ha_window_bytes": 1}, "ha_window_bytes"),
            ({"min_in_sync_replicas": 2}, "min_in_sync_replicas"),
            ({"broker_role": "ASYNC_MASTER", "in_sync_replicas": 2, "min_in_sync_replicas": 2}, "min_in_sync_replicas"),
            ({"in_sync_replicas": 3, "total_replicas": 2}, "total_replicas"),
            ({"disk_space_warning_level_ratio": 50}, "disk_space_warning_level_ratio"),
            ({"max_index_num": 2**30}, "max_index_num"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_keys_that_cannot_stand_together_are_refused_and_one_that_was_given_is_blamed(self, flags, blamed):
        error = refused(**flags)
        assert (error.key, error.value, error.source) == (blamed, str(flags[blamed]), "flags")


class TestFiles:
    def test_a_missing_file_is_refused(self, tmp_path):
        for name in ("node.toml", "broker.conf"):
            with pytest.raises(UnreadableSettings, match="No such file"):
                read_settings(tmp_path / name, {}, {})

    def test_a_file_that_is_not_what_its_name_says_is_refused(self, tmp_path):
        for name, text in (("node.toml", "listen_port : 1"), ("broker.conf", "brokerName=\\u12")):
            with pytest.raises(UnreadableSettings):
                read_settings(write(tmp_path / name, text), {}, {})


class TestTheSettingsOfARunningNode:
    def test_they_come_back_from_json_as_they_were(self, tmp_path):
        settings = read_settings(write(tmp_path / "broker.conf", BROKER_CONF), {}, {})
        assert Settings.from_json(settings.to_json()) == settings

    def test_json_that_is_not_theirs_is_refused(self):
        for text in ("", "[]", '{"listen_prt": 1}', '{"listen_port": "x"}'):
            with pytest.raises(BadSetting):
                Settings.from_json(text)

    def test_they_cannot_be_changed(self):
        with pytest.raises(ValidationError, match="frozen"):
            read_settings(None, {}, {}).listen_port = 1


class TestTheModel:
    def test_every_key_of_every_group_is_in_the_settings(self):
        in_groups = [name for group in GROUPS for name in group.model_fields]
        assert len(in_groups) == len(set(in_groups))
        assert Settings.model_fields.keys() == {*in_groups, "ignored"}

    def test_every_key_says_what_it_means(self):
        assert all(field.description for field in Settings.model_fields.values())

    def test_rocketmqs_spelling_becomes_snake_case(self):
        assert snake("checkCRCOnRecover") == "check_crc_on_recover"
        assert snake("brokerIP1") == "broker_ip1"
        assert snake("osPageCacheBusyTimeOutMills") == "os_page_cache_busy_time_out_mills"

    def test_the_page_of_documentation_is_up_to_date(self):
        command = "python -m towline.runtime.settings_doc docs/settings.md"
        assert PAGE_OF_DOCS.read_text(encoding="utf-8") == render(), f"run: {command}"


@pytest.mark.parametrize(
    "error",
    [
        UnknownSetting("a", "flags", "b"),
        UnknownSetting("a", "flags", ""),
        BadSetting("a", "1", "flags", "too small"),
        UnreadableSettings("node.toml", "it is gone"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_the_settings_pickles_and_says_what_to_do(error):
    copy = pickle.loads(pickle.dumps(error))
    assert vars(copy) == vars(error)
    assert str(copy) == f"{error.describe()}; {error.advice}"
