"""Whom a client trusts, and what it shows of itself."""

from __future__ import annotations

import codecs
import contextlib
import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import grpc

from attention_client.errors import InvalidArgumentError

_Path: TypeAlias = str | os.PathLike[str]

# A mark hides the first line's block from gRPC. This OpenSSL may look past it.
_MARKED = codecs.BOM_UTF8 + b"-----BEGIN"
_NO_CERTIFICATE = "holds no certificate (expected PEM)"
# What OpenSSL says of the key of another certificate; the last where one is for
# RSA, say, and the other is not.
_OF_ANOTHER = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")


@dataclass(frozen=True)
class Tls:
    """Files in PEM: whom to trust (None: the system's), and what to show.

    certificate and key go together; they are for servers that ask for one.
    """

    ca: _Path | None = None
    certificate: _Path | None = None
    key: _Path | None = field(default=None, repr=False)

    def credentials(self) -> grpc.ChannelCredentials:
        """InvalidArgumentError where gRPC cannot use a file.

        gRPC itself would end every call as if no server were there.
        """
        if (self.certificate is None) != (self.key is None):
            raise ValueError(
                "tls: a certificate or a key (expected both of them, or none)"
            )
        files = (self.ca, self.key, self.certificate)
        pem = [None if path is None else Path(path).read_bytes() for path in files]
        # A pipe can be read but once.
        if all(path is None or Path(path).is_file() for path in files):
            self._check()
        return grpc.ssl_channel_credentials(*pem)

    def _check(self) -> None:
        for name in ("ca", "certificate", "key"):
            path = getattr(self, name)
            if path is not None and Path(path).read_bytes().startswith(_MARKED):
                why = "begins with a byte-order mark (expected PEM without one)"
                raise _unusable(name, path, why)
        if self.ca is not None and not _has_certificate(self.ca):
            raise _unusable("ca", self.ca, _NO_CERTIFICATE)
        if self.certificate is not None and self.key is not None:
            _check_pair(self.certificate, self.key)


def _unusable(field: str, path: _Path, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{field}: '{os.fspath(path)}' {why}")


def _has_certificate(path: _Path) -> bool:
    """At its beginning, by one of two readers: gRPC takes what either does.

    One goes on where a later certificate is broken, the other reads the form that
    OpenSSL calls trusted.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with contextlib.suppress(ssl.SSLError, ValueError):  # which an empty one is
        text = Path(path).read_bytes().decode("ascii", "backslashreplace")
        context.load_verify_locations(cadata=text)
    if not context.cert_store_stats()["x509"]:
        with contextlib.suppress(ssl.SSLError):
            context.load_verify_locations(path)
    return context.cert_store_stats()["x509"] > 0


def _check_pair(certificate: _Path, key: _Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # The empty passphrase is gRPC's: nobody is there to type one.
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        if error.reason in _OF_ANOTHER:
            why = f"is not the key of the certificate in '{os.fspath(certificate)}'"
            raise _unusable("key", key, why) from None
        if not _has_certificate(certificate):
            raise _unusable("certificate", certificate, _NO_CERTIFICATE) from None
        # Anything else may be a rule of this OpenSSL, which gRPC has not.
        if "PEM lib" in str(error):
            why = "holds no private key (expected PEM, without a passphrase)"
            raise _unusable("key", key, why) from None
