"""A client of etcd's v3 API over its JSON gateway: the few calls that nodes and clients need, each with a time-out.

Keys and values travel as base64, 64-bit numbers as text. A call that etcd did not answer in time may have taken effect
all the same: callers read before they conclude anything.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import urllib3

from towline.errors import EtcdUnavailable

API: Final = "/v3"
NOT_FOUND: Final = 5  # gRPC's code
TIMEOUT_S: Final = 0.5  # of one endpoint
_ANSWER_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key of etcd. `created` and `changed` are revisions; `lease` is 0 for a key that stays."""

    key: str
    value: bytes
    created: int
    changed: int
    lease: int


class Etcd:
    """For one thread. Each call tries the endpoint that answered last first, then the others, once each.

    Every call raises EtcdUnavailable when none of them answers.
    """

    def __init__(self, endpoints: Sequence[str], timeout_s: float = TIMEOUT_S) -> None:
        """`endpoints` are http://host:port or https://host:port."""
        self._endpoints = list(endpoints)
        self._http = urllib3.PoolManager(
            num_pools=len(endpoints) or 1,
            maxsize=1,
            retries=False,
            timeout=urllib3.Timeout(total=timeout_s),
            headers={"Content-Type": "application/json"},
        )

    def read(self, prefix: str) -> dict[str, KeyValue]:
        """Every key that begins with `prefix`, in one consistent revision."""
        answer = self._call("/kv/range", {"key": _text(prefix), "range_end": _text(_after(prefix))})
        try:
            found = [_key_value(facts) for facts in answer.get("kvs", ())]
        except (KeyError, TypeError, ValueError) as error:
            raise EtcdUnavailable(f"it answers with keys that are none: {error!r}") from None
        return {one.key: one for one in found}

    def swap(self, unchanged: Mapping[str, int], absent: Sequence[str], puts: Mapping[str, tuple[bytes, int]]) -> bool:
        """Puts `puts` (key -> value, lease) if `unchanged` keys have their revisions and no `absent` one exists."""
        compare = [
            {"key": _text(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}
            for key, revision in unchanged.items()
        ]
        compare += [
            {"key": _text(key), "target": "CREATE", "result": "EQUAL", "create_revision": "0"} for key in absent
        ]
        success = [
            {"request_put": {"key": _text(key), "value": _bytes(value), "lease": str(lease)}}
            for key, (value, lease) in puts.items()
        ]
        return bool(self._call("/kv/txn", {"compare": compare, "success": success}).get("succeeded", False))

    def grant(self, ttl_s: int) -> tuple[int, int]:
        """A new lease: (id, seconds it lasts). Etcd may make it longer than was asked."""
        answer = self._call("/lease/grant", {"TTL": str(ttl_s)})
        return int(answer["ID"]), int(answer["TTL"])

    def keep_alive(self, lease: int) -> int:
        """Seconds that the lease lasts from now on; 0 when it is over."""
        answer = self._call("/lease/keepalive", {"ID": str(lease)})
        return int(answer.get("result", {}).get("TTL", 0))

    def revoke(self, lease: int) -> None:
        """Ends the lease and deletes its keys; a lease that is over already is no error."""
        self._call("/lease/revoke", {"ID": str(lease)})

    def close(self) -> None:
        self._http.clear()

    def _call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        data, troubles = json.dumps(body).encode(), []
        for endpoint in list(self._endpoints):
            try:
                return self._post(endpoint, path, data)
            except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
                troubles.append(f"{endpoint}: {_said(error)}")
                self._endpoints.remove(endpoint)
                self._endpoints.append(endpoint)  # the next call begins with another one
        raise EtcdUnavailable("; ".join(troubles))

    def _post(self, endpoint: str, path: str, data: bytes) -> dict[str, Any]:
        response = self._http.request(
            "POST", endpoint.rstrip("/") + API + path, body=data, redirect=False, preload_content=False
        )
        try:
            content = response.read(_ANSWER_MAX, decode_content=True)
        finally:
            response.drain_conn()
            response.release_conn()
        answer = json.loads(content)
        if not isinstance(answer, dict):
            raise ValueError(f"it answers {path} with no JSON object")
        if response.status == 200 and "error" not in answer:
            return answer
        if answer.get("code") == NOT_FOUND:
            return {}
        raise ValueError(f"it answers {path} with {response.status}: {answer.get('message') or answer.get('error')}")


def _key_value(facts: dict[str, Any]) -> KeyValue:
    return KeyValue(
        key=base64.b64decode(facts["key"]).decode("utf-8", "replace"),
        value=base64.b64decode(facts.get("value", "")),
        created=int(facts["create_revision"]),
        changed=int(facts["mod_revision"]),
        lease=int(facts.get("lease", 0)),
    )


def _after(prefix: str) -> str:
    """The first key behind all that begin with `prefix`."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def _text(text: str) -> str:
    return _bytes(text.encode())


def _bytes(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _said(error: Exception) -> str:
    return type(error).__name__ if isinstance(error, urllib3.exceptions.HTTPError) else str(error)
