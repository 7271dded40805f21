"""The ports of a node: which of them it has where nobody names any, and what stands between clients and the network."""

from pathlib import Path
from typing import ClassVar

import pytest

from towline.errors import BadSetting
from towline.runtime.settings import Settings, read_settings
from towline.runtime.settings_model import TlsMode

CLIENTS = ("listen_port", "fast_listen_port", "name_server_port")
ROCKETMQS = (10_911, 10_909, 9_876)
BEYOND = {"listen_host": "192.0.2.1"}  # kept for examples
KEYS = {"keys_dir": "/keys"}
FILES = {"tls_server_cert_path": "/node.crt", "tls_server_key_path": "/node.key"}
TLS = FILES | {"tls_server_mode": "ENFORCING"}


def ports(*names: str, **given: object) -> tuple[int, ...]:
    settings = read_settings(None, given, {})
    return tuple(getattr(settings, name) for name in names)


class TestDefaults:
    def test_a_node_on_loopback_has_rocketmqs_numbers_and_ours_beside_them(self):
        assert ports(*CLIENTS) == ROCKETMQS
        assert ports("ha_listen_port") == (10_912,)

    @pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "[::1]"])
    def test_every_address_of_loopback_counts(self, host):
        assert ports(*CLIENTS, listen_host=host) == ROCKETMQS

    @pytest.mark.parametrize("insecure", [True, 1, "true", "True", "t", "1", "on", "yes", "Y"])
    def test_beyond_loopback_where_anybody_may_come(self, insecure):
        assert ports(*CLIENTS, **BEYOND, insecure=insecure) == ROCKETMQS

    @pytest.mark.parametrize("more", [{}, FILES, TLS, {"insecure": False}, {"insecure": "false"}])
    def test_beyond_loopback_with_keys_and_then_over_tls_alone(self, more):
        assert ports(*CLIENTS, **BEYOND, **KEYS, **more) == ROCKETMQS
        assert ports("tls_server_mode", **BEYOND, **KEYS, **more) == (TlsMode.ENFORCING,)

    @pytest.mark.parametrize("given", [{}, KEYS, BEYOND | KEYS | {"insecure": True}, BEYOND | {"insecure": True}])
    def test_on_loopback_or_where_anybody_may_come_tls_is_for_who_begins_with_it(self, given):
        assert ports("tls_server_mode", **given) == (TlsMode.PERMISSIVE,)

    @pytest.mark.parametrize("given", [10_931, "10931", 0, "0"])
    def test_beside_another_number_there_is_no_second_one(self, given):
        assert ports(*CLIENTS, listen_port=given) == (int(given), 0, 0)

    @pytest.mark.parametrize("given", [10_911, "10911"])
    def test_the_number_that_it_has_anyway_changes_nothing(self, given):
        assert ports(*CLIENTS, listen_port=given) == ROCKETMQS

    def test_those_that_are_given_are_taken(self):
        given = {"listen_port": 10_931, "fast_listen_port": 10_929, "name_server_port": 9_877}
        assert ports(*CLIENTS, **given) == (10_931, 10_929, 9_877)
        assert ports(*CLIENTS, name_server_port=0) == (10_911, 10_909, 0)

    def test_the_listen_port_of_a_broker_conf_is_where_clients_come_to(self, tmp_path: Path):
        conf = tmp_path / "broker.conf"
        conf.write_text("brokerName=a\nlistenPort=10911\n")
        settings = read_settings(conf, {}, {})
        assert [port for _, port in settings.remoting_addresses] == list(ROCKETMQS)
        assert settings.store_port == 10_911
        conf.write_text("brokerName=a\nlistenPort=30911\nhaListenPort=30912\n")
        assert read_settings(conf, {}, {}).remoting_addresses == [("127.0.0.1", 30_911)]

    @pytest.mark.parametrize("given", [{}, BEYOND | KEYS, BEYOND | KEYS | TLS, {"listen_port": 0}])
    def test_what_a_node_wrote_down_is_what_it_reads(self, given):
        settings = read_settings(None, given, {})
        assert Settings.from_json(settings.to_json()) == settings

    def test_a_switch_that_is_none_is_refused_by_its_own_name(self):
        with pytest.raises(BadSetting) as raised:
            read_settings(None, BEYOND | KEYS | {"insecure": "perhaps"}, {})
        assert raised.value.key == "insecure"


class TestRefusals:
    """What stands between RocketMQ's clients and a port of the network."""

    OPEN: ClassVar = {"listen_port": 9_876} | BEYOND | KEYS

    @pytest.mark.parametrize(
        ("more", "why"),
        [
            ({"tls_server_mode": "PERMISSIVE"}, "beyond loopback clients come over TLS"),
            (FILES | {"tls_server_mode": "DISABLED"}, "DISABLED keeps out who has a key file"),
            ({"tls_server_cert_path": "/node.crt"}, "go together"),
            ({**TLS, "keys_dir": None}, "needs keys"),
        ],
        ids=["TLS as one likes", "no TLS", "no key", "no keys"],
    )
    def test_beyond_loopback_it_takes_keys_and_tls(self, more, why):
        given = {key: value for key, value in (self.OPEN | more).items() if value is not None}
        with pytest.raises(BadSetting, match=why):
            read_settings(None, given, {})

    def test_the_mode_is_blamed(self):
        with pytest.raises(BadSetting, match="beyond loopback clients come over TLS") as raised:
            read_settings(None, BEYOND | KEYS | {"tls_server_mode": "PERMISSIVE"}, {})
        assert (raised.value.key, raised.value.source) == ("tls_server_mode", "flags")

    @pytest.mark.parametrize("more", [{}, BEYOND | {"insecure": True}])
    def test_a_ring_and_no_tls_cannot_be(self, more):
        with pytest.raises(BadSetting, match="DISABLED keeps out who has a key file"):
            read_settings(None, KEYS | {"tls_server_mode": "DISABLED"} | more, {})
        assert ports("listen_port", **KEYS, tls_server_mode="DISABLED", listen_port=0) == (0,)

    @pytest.mark.parametrize("insecure", [True, False])
    def test_tls_alone_takes_a_certificate(self, insecure):
        with pytest.raises(BadSetting, match="ENFORCING needs a certificate: set keys_dir"):
            read_settings(None, {"tls_server_mode": "ENFORCING", "insecure": insecure}, {})

    @pytest.mark.parametrize("more", [{}, TLS, {"insecure": True, "tls_server_mode": "PERMISSIVE"}])
    def test_with_both_or_where_it_is_said_it_is_open(self, more):
        assert ports("listen_port", **self.OPEN | more) == (9_876,)

    @pytest.mark.parametrize("key", ["name_server_port", "fast_listen_port"])
    def test_the_other_ports_of_clients_need_it_and_are_others(self, key):
        with pytest.raises(BadSetting, match=f"{key}.*needs listen_port"):
            read_settings(None, {key: 9_870, "listen_port": 0}, {})
        with pytest.raises(BadSetting, match=f"listen_port and {key} must differ"):
            read_settings(None, {key: 9_870, "listen_port": 9_870}, {})

    @pytest.mark.parametrize("key", ["ha_listen_port"])
    @pytest.mark.parametrize("number", ROCKETMQS)
    def test_a_port_that_is_given_is_blamed_and_not_the_default_that_has_it(self, key, number):
        with pytest.raises(BadSetting, match="must differ") as raised:
            read_settings(None, {key: number}, {})
        assert raised.value.key == key


class TestSlavesOfRocketmq:
    def test_ask_for_topics_2_below_the_port_of_clients_wherever_that_is(self):
        given = {"rocketmq_ha_port": 30_005}
        assert read_settings(None, given, {}).fast_listen_port == 10_909
        assert read_settings(None, given | {"listen_port": 30_000}, {}).fast_listen_port == 29_998

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            pytest.param({"listen_port": 0}, "needs listen_port", id="no port for clients"),
            pytest.param({"listen_port": 30_000, "fast_listen_port": 0}, "2 below", id="no port for topics"),
            pytest.param({"listen_port": 30_000, "fast_listen_port": 29_999}, "2 below", id="another one for them"),
            pytest.param({"listen_port": 30_005}, "must differ", id="one port twice"),
        ],
    )
    def test_could_not_follow_such_a_node(self, given, said):
        with pytest.raises(BadSetting, match=said):
            read_settings(None, {"rocketmq_ha_port": 30_005, **given}, {})
