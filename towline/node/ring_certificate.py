"""The certificate of a key ring: made once, for the nodes of a cluster, wherever they are.

It vouches for itself: clients have it in their key file and trust nothing else. So it does not expire (RFC 5280,
4.1.2.5: 99991231235959Z); a ring that is not trusted any more is replaced.
"""

from datetime import UTC, datetime
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from towline.link.keys import RING_HOST

_SINCE: Final = datetime(2020, 1, 1, tzinfo=UTC)  # whatever a node's clock shows
_FOREVER: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def make_certificate() -> bytes:
    """A private key (P-256) and the certificate for RING_HOST that belongs to it, PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, RING_HOST)])
    own_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), _SINCE, _FOREVER)
    for extension, critical in (
        (x509.SubjectAlternativeName([x509.DNSName(RING_HOST)]), False),
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (_usage(), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (own_id, False),
        (x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own_id), False),
    ):
        builder = builder.add_extension(extension, critical)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return secret + builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _usage() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
