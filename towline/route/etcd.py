"""A client of etcd's v3 API over its JSON gateway: the few calls that nodes and clients need, each with a time-out.

Keys and values travel as base64, 64-bit numbers as text. A call that etcd did not answer in time may have taken effect
all the same: callers read before they conclude anything. Where etcd has users, a token from `auth/authenticate` goes
along as the header Authorization; it is over when nobody has used it for some minutes, or etcd was started anew.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import urllib3

from towline.errors import EtcdUnavailable

API: Final = "/v3"
NOT_FOUND, UNAUTHENTICATED = 5, 16  # gRPC's codes
TIMEOUT_S: Final = 0.5  # of one endpoint
_AUTHENTICATE_S: Final = 5.0  # etcd compares a password slowly, on purpose
_OLD_TOKEN: Final = "revision of auth store is old"  # a user or a role was changed
_ANSWER_MAX: Final = 1 << 20
_SAID_MAX: Final = 200  # bytes of an answer that is none


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key of etcd. `created` and `changed` are revisions; `lease` is 0 for a key that stays."""

    key: str
    value: bytes
    created: int
    changed: int
    lease: int


@dataclass(frozen=True, slots=True)
class Access:
    """How etcd is spoken with: paths of files, "" for none, and a user. `ca` has the authorities that are trusted, by
    default the system's; `cert` and `key` are our own certificate, `password_file` has the password in its first line.
    """

    ca: str = ""
    cert: str = ""
    key: str = ""
    user: str = ""
    password_file: str = ""


_ANYBODY: Final = Access()
_HEADERS: Final = {"Content-Type": "application/json"}
_tokens: Final[dict[tuple[str, Access], str]] = {}  # of this process, by endpoint


class Etcd:
    """For one thread. Each call tries the endpoint that answered last first, then the others, once each.

    Every call raises EtcdUnavailable when none of them answers, or takes this client for what it says it is.
    """

    def __init__(self, endpoints: Sequence[str], timeout_s: float = TIMEOUT_S, access: Access = _ANYBODY) -> None:
        """`endpoints` are http://host:port or https://host:port."""
        self._endpoints, self._access, self._timeout_s = list(endpoints), access, timeout_s
        self._http = urllib3.PoolManager(
            num_pools=len(endpoints) or 1,
            maxsize=1,
            retries=False,
            ca_certs=access.ca or None,
            cert_file=access.cert or None,
            key_file=access.key or None,
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
                return self._ask(endpoint, path, data)
            except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
                troubles.append(f"{endpoint}: {_said(error)}")
                self._endpoints.remove(endpoint)
                self._endpoints.append(endpoint)  # the next call begins with another one
        raise EtcdUnavailable("; ".join(troubles))

    def _ask(self, endpoint: str, path: str, data: bytes) -> dict[str, Any]:
        """As the user, if there is one. A token that is over is replaced once."""
        if not self._access.user:
            return self._post(endpoint, path, data)
        place = (endpoint, self._access)
        if (token := _tokens.get(place)) is not None:
            try:
                return self._post(endpoint, path, data, token)
            except _NotAuthenticated:
                pass
        _tokens[place] = self._token(endpoint)
        return self._post(endpoint, path, data, _tokens[place])

    def _token(self, endpoint: str) -> str:
        """A new one. Raises ValueError, OSError."""
        lines = Path(self._access.password_file).read_text(encoding="utf-8").splitlines()
        password = lines[0] if lines else ""
        asked = json.dumps({"name": self._access.user, "password": password}).encode()
        found = self._post(endpoint, "/auth/authenticate", asked, timeout_s=_AUTHENTICATE_S).get("token")
        if not isinstance(found, str):
            raise ValueError("it gives no token")
        return found

    def _post(self, endpoint: str, path: str, data: bytes, token: str = "", timeout_s: float = 0.0) -> dict[str, Any]:
        """`timeout_s`: 0 is that of the client."""
        response = self._http.request(
            "POST",
            endpoint.rstrip("/") + API + path,
            body=data,
            headers=_HEADERS | ({"Authorization": token} if token else {}),
            redirect=False,
            preload_content=False,
            timeout=urllib3.Timeout(total=timeout_s or self._timeout_s),
        )
        try:
            content = response.read(_ANSWER_MAX, decode_content=True)
        finally:
            response.drain_conn()
            response.release_conn()
        try:
            answer = json.loads(content)
        except ValueError:
            said = content[:_SAID_MAX].decode("utf-8", "replace").strip()
            raise ValueError(f"it answers {path} with {response.status}, and no JSON: {said}") from None
        if not isinstance(answer, dict):
            raise ValueError(f"it answers {path} with no JSON object")
        if response.status == 200 and "error" not in answer:
            return answer
        if answer.get("code") == NOT_FOUND:
            return {}
        if answer.get("code") == UNAUTHENTICATED or _OLD_TOKEN in str(answer.get("message")):
            raise _NotAuthenticated(f"it answers {path} with: {answer.get('message')}")
        raise ValueError(f"it answers {path} with {response.status}: {answer.get('message') or answer.get('error')}")


class _NotAuthenticated(ValueError):
    """The token is over."""


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
    if isinstance(error, urllib3.exceptions.SSLError):
        return str(error.args[0]) if error.args else type(error).__name__
    return type(error).__name__ if isinstance(error, urllib3.exceptions.HTTPError) else str(error)
