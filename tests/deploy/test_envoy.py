# SPDX-License-Identifier: Apache-2.0
"""deploy/envoy with a real Envoy and two real replicas: what test_haproxy.py asks of HAProxy."""

import contextlib
import signal

import numpy as np
import pytest
import yaml

from balancer_cases import kill, leave_and_return, reach_both, stay, terminate
from balancer_load import HEADER, Stream, answered, header
from envoy_process import CONFIG, Envoy, need, validate
from haproxy_process import CONFIG as HAPROXY

pytest_plugins = ["balancer_fixtures"]


@pytest.fixture(scope="module")
def program():
    return need()


@pytest.fixture
def proxy(program, replicas, tmp_path):
    with Envoy(program, tmp_path, replicas) as one:
        yield one


def test_envoy_takes_the_file_as_it_is(program):
    code, said = validate(program, CONFIG)
    assert code == 0, said
    assert "eprecated" not in said, said


def test_envoy_would_find_a_wrong_key(program, tmp_path):
    said = yaml.safe_load(CONFIG.read_text())
    said["static_resources"]["clusters"][0]["lb_polcy"] = "RING_HASH"
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump(said))
    code, said = validate(program, path)
    assert code != 0 and "lb_polcy" in said, said


def test_every_geometry_stays_on_one_replica(proxy, replicas, grids):
    stay(proxy, replicas, grids)


def test_calls_without_the_header_reach_both(proxy, replicas, grids):
    reach_both(proxy, replicas, grids)


def stream_on(proxy, replica, grids):
    """(stream, grid): one whose geometry is the replica's."""
    for grid in grids:
        stream = Stream(proxy.grpc, proxy.tls, header(grid[0]))
        stream.infer(*grid)
        if replica.metrics()["voxeld_streams"] == 1:
            return stream, grid
        stream.end()
        stream.close()
    raise AssertionError(f"no geometry is at home on {replica.name}")


def test_a_replica_is_drained_with_a_stream_under_load(proxy, replicas, grids):
    """SIGTERM, and a grace as long as the stream needs: it is served to its end, new calls go
    elsewhere, and the replica that ends has no call any more."""

    def drain(proxy, replica, _busy):
        stream, grid = stream_on(proxy, replica, grids)
        with contextlib.closing(stream):
            first = stream.infer(*grid)
            replica.terminate()
            proxy.wait_down(replica.name)
            yield

            def alone():
                """It answers, and nobody else is answered meanwhile."""
                before = answered(replica)
                for _ in range(5):
                    assert np.array_equal(stream.infer(*grid), first)
                return answered(replica) - before == 5

            proxy.wait_for("the load to be elsewhere", alone)
            stream.end()
        replica.daemon.wait_for("its end", lambda: replica.metrics()["voxeld_streams"] == 0)
        replica.signal(signal.SIGTERM)
        assert replica.end() == 0
        yield

    leave_and_return(proxy, replicas, grids, drain)


@pytest.mark.parametrize("how", [terminate, kill])
def test_a_replica_leaves_and_comes_back_under_load(proxy, replicas, grids, how):
    leave_and_return(proxy, replicas, grids, how)


def test_a_large_request_on_a_killed_replica_runs_on_the_other(proxy, replicas, large_grids):
    leave_and_return(proxy, replicas, large_grids, kill, count=6)


def test_envoy_says_what_haproxy_says():
    said, haproxy = yaml.safe_load(CONFIG.read_text()), HAPROXY.read_text()
    resources = said["static_resources"]
    (listener,), (cluster,) = resources["listeners"], resources["clusters"]
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
    assert f'tune.bufsize {host["request_body_buffer_limit"]}\n' in haproxy
    assert cluster["lb_policy"] == "RING_HASH" and "hash-type consistent" in haproxy
    (check,) = cluster["health_checks"]
    rise, fall = check["healthy_threshold"], check["unhealthy_threshold"]
    assert check["grpc_health_check"] == {} and f"inter 500ms fall {fall} rise {rise}" in haproxy
    (group,) = cluster["load_assignment"]["endpoints"]
    ports = [
        one["endpoint"]["address"]["socket_address"]["port_value"] for one in group["lb_endpoints"]
    ]
    assert [f"VOXELD_{a} 127.0.0.1:{port}" in haproxy for a, port in zip("AB", ports)] == [True] * 2
