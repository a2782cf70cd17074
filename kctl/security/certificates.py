"""The names in a certificate.  Imports `cryptography`, which takes time: import it only where TLS is used."""

from __future__ import annotations

from cryptography import x509

from kctl.security.principals import Attribute, distinguished_name


def subject_name(certificate: bytes) -> str:
    """The subject of a DER encoded certificate in RFC 2253 form, as Java prints it.  Raises ValueError."""
    try:
        return name_text(x509.load_der_x509_certificate(certificate).subject)
    except (TypeError, x509.InvalidVersion) as error:  # TypeError: a name in a bit string.
        raise ValueError(f"the certificate cannot be read: {error}") from None


def name_text(name: x509.Name) -> str:
    """The RFC 2253 form of a name, as Java prints it."""
    return distinguished_name([[_attribute(entry) for entry in rdn] for rdn in name.rdns])


def _attribute(entry: x509.NameAttribute[str | bytes]) -> Attribute:
    value = entry.value if isinstance(entry.value, str) else None
    return Attribute(entry.oid.dotted_string, value, _encoded_value(entry))


def _encoded_value(entry: x509.NameAttribute[str | bytes]) -> bytes:
    """The DER encoding of the value: the last element of Name, RelativeDistinguishedName, AttributeTypeAndValue."""
    encoded = x509.Name([entry]).public_bytes()
    for _ in range(3):
        encoded = encoded[_header_size(encoded) :]
    oid_size = encoded[1]
    return encoded[2 + oid_size :]


def _header_size(encoded: bytes) -> int:
    """Bytes of tag and length of a DER element."""
    return 2 if encoded[1] < 0x80 else 2 + (encoded[1] & 0x7F)
