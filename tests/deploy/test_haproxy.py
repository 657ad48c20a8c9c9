# SPDX-License-Identifier: Apache-2.0
"""deploy/haproxy with a real HAProxy and two real replicas: a geometry stays on one of them, and
no call fails while a replica is drained, stopped or killed."""

import contextlib
import shutil
import signal
import subprocess

import grpc
import pytest
import yaml

from deployed import DEPLOY
from haproxy_load import HEADER, MODEL, Load, Raw, answered, header, homes, misses, opened
from haproxy_process import HAProxy, Replica, address, need, states
from model_files import ConvModel, random_grid
from voxeld import Client, messages
from voxeld_process import PATIENCE

GEOMETRIES = 40


@pytest.fixture(scope="module")
def program():
    return need()


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    path, model = tmp_path_factory.mktemp("repository"), ConvModel()
    model.network.update(limits={"voxels_max": 10000}, warmup=[10])
    model.write(path, MODEL)
    return path


@pytest.fixture(scope="module")
def grids():
    """Sizes on both sides of the 64 rows that make a header."""
    return [random_grid(seed, 20 + 7 * seed) for seed in range(GEOMETRIES)]


@pytest.fixture
def replicas(repository, tmp_path):
    """Two, one over TCP and one over a Unix socket.  Their grace is over at the second SIGTERM."""
    flags = ("--grace-ms", "600000", "--drain-ms", "600000")
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(Replica(repository, tmp_path, name, where, *flags))
            for name, where in (
                ("a", address(21802)),
                ("b", f"{address(21803)},unix:{tmp_path}/b.sock"),
            )
        ]


@pytest.fixture
def proxy(program, replicas, tmp_path):
    unix = f"unix@{tmp_path}/b.sock"
    with HAProxy(program, tmp_path, VOXELD_A=replicas[0].grpc, VOXELD_B=unix) as one:
        yield one


def test_every_geometry_stays_on_one_replica(proxy, replicas, grids):
    before = sum(misses(one) for one in replicas)
    first = homes(proxy.grpc, replicas, grids)
    assert {first.count("a"), first.count("b")} <= set(range(8, 33)), first
    # Three clients sent each grid: the neighbour maps were built once.
    assert sum(misses(one) for one in replicas) - before == GEOMETRIES
    assert homes(proxy.grpc, replicas, grids[::-1])[::-1] == first
    assert sum(misses(one) for one in replicas) - before == GEOMETRIES


def test_calls_without_the_header_reach_both(proxy, replicas, grids):
    before = [answered(one) for one in replicas]
    with opened(proxy.grpc, [Raw]) as (client,):
        for _ in range(GEOMETRIES):
            client.infer(*grids[0])
    more = [answered(one) - old for one, old in zip(replicas, before)]
    assert sum(more) == GEOMETRIES and min(more) > 0, more
    with Client(proxy.grpc) as client:
        assert client.server_ready() and client.model_ready(MODEL)
        assert client.model_metadata(MODEL).name == MODEL


def drain(proxy, replica):
    """As deploy/haproxy/README.md says; the replica that ends has no call any more."""
    for name in ("voxeld", "voxeld_any"):
        assert f"{name}/{replica.name}" in states(proxy.admin)
    proxy.ask(f"set server voxeld/{replica.name} state drain")
    proxy.wait_state("DRAIN", f"voxeld/{replica.name}", f"voxeld_any/{replica.name}")
    yield
    replica.terminate()
    replica.signal(signal.SIGTERM)
    assert replica.end() == 0
    yield
    proxy.ask(f"set server voxeld/{replica.name} state ready")


def terminate(proxy, replica):
    """It sees NOT_SERVING while the replica still answers; the second signal ends the grace."""
    replica.terminate()
    proxy.wait_state("DOWN", f"voxeld/{replica.name}", f"voxeld_any/{replica.name}")
    assert replica.daemon.process.poll() is None
    yield
    replica.signal(signal.SIGTERM)
    assert replica.end() == 0
    yield


def kill(proxy, replica):
    replica.signal(signal.SIGKILL)
    replica.end()
    yield
    proxy.wait_state("DOWN", f"voxeld/{replica.name}", f"voxeld_any/{replica.name}")
    yield


@pytest.mark.parametrize("how", [drain, terminate, kill])
def test_a_replica_leaves_and_comes_back_under_load(proxy, replicas, grids, how):
    first = homes(proxy.grpc, replicas, grids)
    for leaving, other in (replicas, replicas[::-1]):
        with Load(proxy.grpc, grids) as load:
            load.wait_progress()
            steps = how(proxy, leaving)
            next(steps)
            load.wait_progress()
            next(steps)
            before = answered(other)
            load.wait_progress()
            assert answered(other) - before >= 30 * len(load.threads)
            leaving.start()
            next(steps, None)
            proxy.wait_state("UP", f"voxeld/{leaving.name}", f"voxeld_any/{leaving.name}")
            load.wait_progress()
        assert not load.errors, load.errors
    assert homes(proxy.grpc, replicas, grids) == first


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
                home = homes(proxy.grpc, replicas, [(coords, feats)])[0]
                before = {one.name: answered(one) for one in replicas}
                request = messages.pack_infer(MODEL, coords, feats, {})
                call(request, metadata=((HEADER, header(coords)),), timeout=PATIENCE)
                more = {one.name: answered(one) - before[one.name] for one in replicas}
                assert more == {**dict.fromkeys("ab", 0), home: 1}


def objects(value):
    """Every mapping in a document."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, (dict, list)):
            yield from objects(inner)


def test_envoy_says_what_haproxy_says():
    """No Envoy runs here: its file is read as YAML, and compared with HAProxy's."""
    said = yaml.safe_load((DEPLOY / "envoy" / "envoy.yaml").read_text())
    haproxy = (DEPLOY / "haproxy" / "haproxy.cfg").read_text()
    resources = said["static_resources"]
    (listener,), (cluster,) = resources["listeners"], resources["clusters"]
    kind, options = "type.googleapis.com/envoy.extensions.", "typed_extension_protocol_options"
    for one in objects(said):
        assert "<<" not in one  # Envoy's reader knows no merge keys
        for config in (one.get("typed_config"), *one.get(options, {}).values()):
            assert not config or config["@type"].startswith(kind)
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    (host,) = manager["route_config"]["virtual_hosts"]
    stream, rest = host["routes"]
    assert f'path -m end {stream["match"]["path"][-17:]}' in haproxy
    assert rest["match"] == {"prefix": "/"}
    for route in (stream["route"], rest["route"]):
        assert route["cluster"] == cluster["name"] and route["timeout"] == "0s"
        assert route["hash_policy"] == [{"header": {"header_name": HEADER}}]
    assert "retry_policy" not in stream["route"]
    assert f'retries {rest["route"]["retry_policy"]["num_retries"]}\n' in haproxy
    assert f'tune.bufsize {host["per_request_buffer_limit_bytes"]}\n' in haproxy
    assert cluster["lb_policy"] == "RING_HASH" and "hash-type consistent" in haproxy
    (check,) = cluster["health_checks"]
    rise, fall = check["healthy_threshold"], check["unhealthy_threshold"]
    assert check["grpc_health_check"] == {} and f"inter 500ms fall {fall} rise {rise}" in haproxy
    (group,) = cluster["load_assignment"]["endpoints"]
    ports = [
        one["endpoint"]["address"]["socket_address"]["port_value"] for one in group["lb_endpoints"]
    ]
    assert [f"VOXELD_{a} 127.0.0.1:{port}" in haproxy for a, port in zip("AB", ports)] == [True] * 2
