# SPDX-License-Identifier: Apache-2.0
"""Probes as the kubelet makes them, against a daemon whose ports stand for those of the pod."""

import http.client
import socket

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc


def ask_grpc(address, probe, seconds):
    """SERVING is a success, any other answer and none are not."""
    with grpc.insecure_channel(address) as channel:
        request = health_pb2.HealthCheckRequest(service=probe.get("service", ""))
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=seconds)
        except grpc.RpcError:
            return False
        return answer.status == health_pb2.HealthCheckResponse.SERVING


def ask_http(address, probe, seconds):
    host, port = address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=seconds)
    try:
        connection.request("GET", probe["path"])
        return 200 <= connection.getresponse().status < 400
    except OSError:
        return False
    finally:
        connection.close()


def connects(address, seconds):
    """What a tcpSocket probe asks: whether the kernel accepts for the process."""
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=seconds).close()
        return True
    except OSError:
        return False


def ask(daemon, container, name, seconds):
    """One probe of a container.  `seconds` stands for its timeoutSeconds: machines are busy."""
    probe = container[name]
    if "grpc" in probe:
        return ask_grpc(daemon.grpc, probe["grpc"], seconds)
    return ask_http(daemon.http, probe["httpGet"], seconds)
