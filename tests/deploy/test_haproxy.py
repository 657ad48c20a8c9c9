# SPDX-License-Identifier: Apache-2.0
"""deploy/haproxy with a real HAProxy and two real replicas: a geometry stays on one of them, and
no call fails while a replica is drained, stopped or killed."""

import shutil
import subprocess

import grpc
import pytest

from balancer_cases import kill, leave_and_return, reach_both, stay, terminate
from balancer_load import HEADER, MODEL, answered, header, homes
from haproxy_process import HAProxy, drain, need
from replica_process import address
from voxeld import messages
from voxeld_process import PATIENCE

pytest_plugins = ["balancer_fixtures"]


@pytest.fixture(scope="module")
def program():
    return need()


@pytest.fixture
def proxy(program, replicas, tmp_path):
    unix = f"unix@{tmp_path}/b.sock"
    with HAProxy(program, tmp_path, VOXELD_A=replicas[0].grpc, VOXELD_B=unix) as one:
        yield one


def test_every_geometry_stays_on_one_replica(proxy, replicas, grids):
    stay(proxy, replicas, grids)


def test_calls_without_the_header_reach_both(proxy, replicas, grids):
    reach_both(proxy, replicas, grids)


@pytest.mark.parametrize("how", [drain, terminate, kill])
def test_a_replica_leaves_and_comes_back_under_load(proxy, replicas, grids, how):
    leave_and_return(proxy, replicas, grids, how)


def test_a_large_request_on_a_killed_replica_runs_on_the_other(proxy, replicas, large_grids):
    leave_and_return(proxy, replicas, large_grids, kill, count=6)


def certificate(folder):
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        + ["-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext"]
        + ["subjectAltName=DNS:localhost", "-keyout", folder / "key", "-out", folder / "cert"],
        capture_output=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    (folder / "both").write_bytes((folder / "cert").read_bytes() + (folder / "key").read_bytes())
    return (folder / "cert").read_bytes()


def test_tls(program, replicas, grids, tmp_path):
    """The same replicas behind both ports: a geometry's replica does not depend on the port."""
    if not shutil.which("openssl"):
        pytest.skip("SKIPPED deploy_haproxy: no openssl, which makes the certificate")
    trusted = grpc.ssl_channel_credentials(certificate(tmp_path))
    where = {"VOXELD_A": replicas[0].grpc, "VOXELD_B": replicas[1].grpc.split(",")[0]}
    tls = address(21804)
    with HAProxy(
        program,
        tmp_path,
        VOXELD_CERTIFICATE=str(tmp_path / "both"),
        VOXELD_TLS_LISTEN=tls,
        **where,
    ) as proxy:
        # The certificate is of localhost, and this address is none of its names.
        options = (("grpc.ssl_target_name_override", "localhost"),)
        with grpc.secure_channel(tls, trusted, options) as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            for coords, feats in grids[:5]:
                home = homes(proxy, replicas, [(coords, feats)])[0]
                before = {one.name: answered(one) for one in replicas}
                request = messages.pack_infer(MODEL, coords, feats, {})
                call(request, metadata=((HEADER, header(coords)),), timeout=PATIENCE)
                more = {one.name: answered(one) - before[one.name] for one in replicas}
                assert more == {**dict.fromkeys("ab", 0), home: 1}
