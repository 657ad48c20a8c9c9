# SPDX-License-Identifier: Apache-2.0
"""A client's certificate in place of a token: its subject as the file of tokens names it."""
import json

import pytest
from voxeld import Client, PermissionDenied, Tls, Unauthenticated

from access_rig import Tokens
from certificates import Authority
from model_files import ConvModel, random_grid
from voxeld_process import PATIENCE, Daemon

CAMERA = "CN=camera,O=Example"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority") / "ca")


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    made = Tokens(tmp_path_factory.mktemp("tokens")).add("robot", models=["other"])
    made.entries["camera"] = {"name": "camera", "certificate": CAMERA, "models": ["conv"],
                              "methods": ["infer"]}
    return made.write()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory, authority, tokens):
    work = tmp_path_factory.mktemp("daemon")
    for name in ("conv", "other"):
        ConvModel().write(work / "models", name)
    pair = authority.sign("server")
    with Daemon(work / "models", work, "--device", "cpu", "--threads", "1",
                "--device-bytes", "64M", "--tls-cert", str(pair.cert), "--tls-key", str(pair.key),
                "--tls-client-ca", str(authority.cert), "--tokens", str(tokens.path)) as one:
        yield one


def asks(daemon, authority, subject, model="conv", token=None):
    pair = authority.sign("client", subject=subject)
    tls = Tls(ca=authority.cert, cert=pair.cert, key=pair.key)
    with Client(daemon.grpc, tls=tls, token=token) as client:
        return client.infer(model, *random_grid(0, 50), timeout=PATIENCE)


def test_the_subject_is_the_identity(daemon, authority):
    assert asks(daemon, authority, "/O=Example/CN=camera")
    with pytest.raises(PermissionDenied, match="other"):
        asks(daemon, authority, "/O=Example/CN=camera", model="other")


@pytest.mark.parametrize("subject", ["/CN=camera", "/O=Elsewhere/CN=camera",
                                     "/CN=camera,O=Example", "/O=Example/CN=camera2"])
def test_another_subject_is_nobody(daemon, authority, subject):
    """A name that only looks like ours, as one whose CN is a whole subject, is not ours."""
    with pytest.raises(Unauthenticated, match="certificate is not known"):
        asks(daemon, authority, subject)


def test_a_token_counts_more_than_a_certificate(daemon, authority, tokens):
    token = tokens.secrets["robot"]
    assert asks(daemon, authority, "/O=Example/CN=camera", model="other", token=token)
    with pytest.raises(PermissionDenied):
        asks(daemon, authority, "/O=Example/CN=camera", token=token)


def test_a_probe_needs_no_entry(daemon, authority):
    """Health asks for no token, and a client of mutual TLS cannot leave its certificate out."""
    pair = authority.sign("probe", subject="/CN=probe")
    with Client(daemon.grpc, tls=Tls(ca=authority.cert, cert=pair.cert, key=pair.key)) as client:
        assert client.server_live(timeout=PATIENCE)


def test_a_refusal_is_shown_and_counted(daemon, authority):
    """What is refused before its message is read is among the page's failures, too."""
    with pytest.raises(Unauthenticated):
        asks(daemon, authority, "/CN=nobody")

    def shown():
        failures = json.loads(daemon.get("/status.json")[1])["failures"]
        return any(row["code"] == "UNAUTHENTICATED" for row in failures)

    daemon.wait_for("the failure to be shown", shown)
