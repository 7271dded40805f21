"""Signatures of requests, as RocketMQ's ACL has them.

Signed are the values of all header fields but the signature, in the order of their names, and the body: HMAC-SHA1 with
the secret key, in base64. The access key says whose it is.
"""

import base64
import hashlib
import hmac
from typing import Final

from .command import Command

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"


def signature(request: Command, secret: str) -> bytes:
    """Of a request, with this secret key."""
    values = [value for name, value in sorted(request.fields.items()) if name != SIGNATURE]
    made = hmac.new(secret.encode(), "".join(values).encode() + bytes(request.body), hashlib.sha1)
    return base64.b64encode(made.digest())


def signed(request: Command, access_key: str, secret: str) -> dict[str, str]:
    """The fields of a request with its signature."""
    fields = {**request.fields, ACCESS_KEY: access_key}
    unsigned = Command(request.code, fields=fields, body=request.body)
    return {**fields, SIGNATURE: signature(unsigned, secret).decode()}
