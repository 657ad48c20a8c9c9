# SPDX-License-Identifier: Apache-2.0
"""Certificates for a load balancer with TLS on both sides, replicas that admit it alone, and who is
refused."""

import shutil
import socket
import ssl

import pytest

from balancer_load import MODEL
from certificates import Authority
from replica_process import Replica, address
import voxeld
from voxeld import Client, Tls
from voxeld_process import PATIENCE

FLAGS = ("--grace-ms", "600000", "--drain-ms", "600000")
NOT_OURS = ("another authority", "another name")


class Authorities:
    """Who signs what: `public` for what clients see, `inside` between the balancer and the
    replicas, `people` for clients, and `stranger`."""

    def __init__(self, folder):
        self.public = Authority(folder / "public", "public")
        self.inside = Authority(folder / "inside", "inside")
        self.people = Authority(folder / "people", "people")
        self.stranger = Authority(folder / "stranger", "stranger")
        self.voxeld = self.inside.sign("replica", "DNS:voxeld")
        self.proxy = self.inside.sign("proxy", "DNS:proxy")
        self.server = self.public.sign("service", "DNS:localhost")

    def trusting(self, pair=None):
        """What a client needs, with a certificate or without."""
        cert, key = (pair.cert, pair.key) if pair else (None, None)
        return Tls(self.public.cert, cert, key, "localhost")

    def not_ours(self, wrong):
        """The pair of a replica that the balancer must not use; `wrong` is one of NOT_OURS."""
        if wrong == "another name":
            return self.inside.sign("b", "DNS:database")
        return self.stranger.sign("b", "DNS:voxeld")


def swap(path, by):
    """Replaces a file at once, as those that renew certificates do."""
    made = path.with_name(f".{path.name}.new")
    shutil.copy(by, made)
    made.rename(path)


def put(folder, name, pair):
    """Key first, then the certificate."""
    swap(folder / f"{name}.key", pair.key)
    swap(folder / f"{name}.crt", pair.cert)


def fill(folder, signed):
    """The balancer's files, in a new folder."""
    folder.mkdir()
    put(folder, "server", signed.server)
    put(folder, "proxy", signed.proxy)
    shutil.copy(signed.inside.cert, folder / "voxeld-ca.crt")
    shutil.copy(signed.people.cert, folder / "clients-ca.crt")
    return folder


def replica(repository, folder, name, pair, trusted):
    flags = ("--tls-cert", pair.cert, "--tls-key", pair.key, "--tls-client-ca", trusted)
    where = address({"a": 21805, "b": 21806}[name])
    return Replica(repository, folder, name, where, *FLAGS, *map(str, flags))


def refused(where, tls):
    with Client(where, tls=tls) as client:
        with pytest.raises(voxeld.Unavailable):
            client.server_live(timeout=PATIENCE)


def handshakes(replica, result):
    return replica.metrics()[f'voxeld_tls_handshakes_total{{result="{result}"}}']


def admits_only(proxy, replica, signed):
    """Each handshake with the replica itself ends as its metrics say."""
    ours = Tls(signed.inside.cert, signed.proxy.cert, signed.proxy.key, "voxeld")
    person = signed.people.sign("person")
    with Client(replica.grpc, tls=ours) as client:
        assert client.model_ready(MODEL)
    for result, cert, key in (
        ("no_certificate", None, None),
        ("bad_certificate", person.cert, person.key),
    ):
        before = handshakes(replica, result)
        refused(replica.grpc, Tls(signed.inside.cert, cert, key, "voxeld"))
        proxy.wait_for(f"{result} to be counted", lambda: handshakes(replica, result) > before)


def shown(where, trusted, name="localhost", own=None):
    """The certificate that is shown now; `trusted` is a file, `own` a Pair to show."""
    context = ssl.create_default_context(cafile=trusted)
    context.set_alpn_protocols(["h2"])
    if own:
        context.load_cert_chain(own.cert, own.key)
    host, port = where.rsplit(":", 1)
    with context.wrap_socket(
        socket.create_connection((host, int(port)), PATIENCE), server_hostname=name
    ) as one:
        return one.getpeercert(binary_form=True)


def join(path, *authorities):
    """Replaces a file of authorities at once."""
    made = path.with_name(f".{path.name}.new")
    made.write_text("".join(one.cert.read_text() for one in authorities))
    made.rename(path)


def trust(replicas, path, *authorities):
    """Replicas read whose certificates they admit; connections stay."""
    name = 'voxeld_tls_reloads_total{result="used"}'
    before = [one.metrics()[name] for one in replicas]
    join(path, *authorities)
    for one, count in zip(replicas, before):
        one.daemon.wait_for("the authorities", lambda: one.metrics()[name] > count)
