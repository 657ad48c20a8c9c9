# SPDX-License-Identifier: Apache-2.0
"""TLS: what a Client needs to trust a server, and to be trusted by it."""
from __future__ import annotations  # Python 3.9 has no str | None

import dataclasses
import os
import pathlib

import grpc


@dataclasses.dataclass(frozen=True)
class Tls:
    """Client(address, tls=Tls(ca="ca.pem")): TLS, by files in PEM.

    ca    authorities that the server's certificate must have; None: those of gRPC
    cert  the client's own certificate, where the server wants one, and key, its private key
    name  the name in the server's certificate; None: the address's host
    """
    ca: str | os.PathLike | None = None
    cert: str | os.PathLike | None = None
    key: str | os.PathLike | None = None
    name: str | None = None

    def __post_init__(self):
        if (self.cert is None) != (self.key is None):
            raise ValueError("tls: cert and key belong together, got one of them")

    def credentials(self):
        """grpc.ChannelCredentials; reads the files.  ValueError for one that is not PEM."""
        return grpc.ssl_channel_credentials(_read("ca", self.ca), _read("key", self.key),
                                            _read("cert", self.cert))

    def options(self):
        """Channel options beside the credentials."""
        return () if self.name is None else (("grpc.ssl_target_name_override", self.name),)


def _read(what, path):
    if path is None:
        return None
    data = pathlib.Path(path).read_bytes()
    if b"-----BEGIN " not in data:
        raise ValueError(f"tls: {what}: expected a file in PEM, got {path}")
    return data


def _is_local(address):
    """An address of this host, which is reached without the proxy that http_proxy names."""
    return address.startswith(("unix:", "localhost:", "127.", "[::1]:"))


def channel_of(module, address, options, credentials, tls):
    """The channel of grpc or grpc.aio."""
    options = (*options, ("grpc.enable_http_proxy", int(not _is_local(address))))
    if credentials is not None and tls is not None:
        raise ValueError("expected credentials or tls, got both")
    if tls is not None and not isinstance(tls, Tls):
        raise TypeError(f"tls: expected Tls(ca=...), or Tls() for gRPC's authorities, got {tls!r}")
    if tls is not None:
        return module.secure_channel(address, tls.credentials(), (*options, *tls.options()))
    if credentials is not None:
        return module.secure_channel(address, credentials, options)
    return module.insecure_channel(address, options)
