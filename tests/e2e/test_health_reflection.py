# SPDX-License-Identifier: Apache-2.0
"""The stock health and reflection clients, beyond test_protocol.py: every service and message of
the reflection, inference by descriptors alone, List, Watch while a model comes and goes."""
import asyncio

import grpc
import numpy as np
import pytest
from google.protobuf import descriptor_pool, json_format, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase)
from model_files import ConvModel, random_grid
from voxeld import Client
from voxeld_process import Daemon

SERVICE = "inference.GRPCInferenceService"
HEALTH = "grpc.health.v1.Health"
SECONDS = 60
SERVING, NOT_SERVING, SERVICE_UNKNOWN = (
    health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING,
    health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)


class Renamed:
    """A channel that lets the stock reflection client, which knows only v1alpha, use `package`."""

    def __init__(self, channel, package):
        self.channel, self.package = channel, package

    def stream_stream(self, path, *rest, **more):
        assert path.startswith("/grpc.reflection.v1alpha.")
        path = path.replace("grpc.reflection.v1alpha", self.package)
        return self.channel.stream_stream(path, *rest, **more)


@pytest.fixture(scope="module")
def channel(daemon):
    with grpc.insecure_channel(daemon.grpc) as one:
        yield one


@pytest.fixture(scope="module", params=["grpc.reflection.v1", "grpc.reflection.v1alpha"])
def database(channel, request):
    return ProtoReflectionDescriptorDatabase(Renamed(channel, request.param))


@pytest.fixture(scope="module")
def pool(database):
    return descriptor_pool.DescriptorPool(database)


def messages_of(method):
    return [message_factory.GetMessageClass(d) for d in (method.input_type, method.output_type)]


def call(channel, service, name, kind="unary_unary"):
    """A callable built from the reflection's answer, and the class of its request."""
    method = service.methods_by_name[name]
    request, reply = messages_of(method)
    return getattr(channel, kind)(
        f"/{service.full_name}/{name}", request_serializer=request.SerializeToString,
        response_deserializer=reply.FromString), request


def test_all_services_are_described(database, pool):
    names = list(database.get_services())
    assert sorted(names) == sorted({SERVICE, HEALTH, "grpc.reflection.v1.ServerReflection",
                                    "grpc.reflection.v1alpha.ServerReflection"})
    methods = {}
    for name in names:
        service = pool.FindServiceByName(name)
        assert service.full_name == name and service.file.package == name.rsplit(".", 1)[0]
        for method in service.methods:
            request, reply = messages_of(method)  # resolves both and all their dependencies
            assert reply.FromString(reply().SerializeToString()) == reply()
            assert request.FromString(request().SerializeToString()) == request()
            methods[f"{name}/{method.name}"] = (method.client_streaming, method.server_streaming)
    assert len([m for m in methods if m.startswith(SERVICE)]) == 20
    streams = {m: kinds for m, kinds in methods.items() if any(kinds)}
    info = "ServerReflection/ServerReflectionInfo"
    assert streams == {f"{SERVICE}/ModelStreamInfer": (True, True),
                       f"{HEALTH}/Watch": (False, True),
                       f"grpc.reflection.v1.{info}": (True, True),
                       f"grpc.reflection.v1alpha.{info}": (True, True)}


def test_files_symbols_and_what_is_none(database):
    service = database.FindFileContainingSymbol(SERVICE)
    assert database.FindFileByName(service.name).SerializeToString() == service.SerializeToString()
    for symbol in (f"{SERVICE}.ModelInfer", "inference.ModelInferRequest",
                   "inference.ModelInferRequest.InferInputTensor"):
        assert database.FindFileContainingSymbol(symbol).name == service.name
    for imported in service.dependency:
        assert database.FindFileByName(imported).name == imported
    for question in (lambda: database.FindFileContainingSymbol("no.such.Thing"),
                     lambda: database.FindFileByName("no_such.proto")):
        with pytest.raises(KeyError):
            question()
    assert database.FindFileContainingExtension("inference.ModelConfig", 100) is None
    assert not list(database.FindAllExtensionNumbers("inference.ModelInferRequest"))


def infer_request(request, coords, feats, identity=""):
    one = json_format.ParseDict(
        {"model_name": "conv", "id": identity, "inputs": [
            {"name": "coords", "datatype": "INT32", "shape": list(coords.shape)},
            {"name": "feats", "datatype": "FP32", "shape": list(feats.shape)}]}, request())
    one.raw_input_contents.extend([coords.tobytes(), feats.tobytes()])
    return one


def test_infer_by_descriptors_alone(channel, pool, client):
    service = pool.FindServiceByName(SERVICE)
    coords, feats = random_grid(60, 1200)
    expected = client.infer("conv", coords, feats)["out"]
    infer, request = call(channel, service, "ModelInfer")
    reply = infer(infer_request(request, coords, feats, "a"), timeout=SECONDS)
    assert reply.id == "a" and list(reply.outputs[0].shape) == [1200, 3]
    assert reply.raw_output_contents[0] == expected.tobytes()

    stream, request = call(channel, service, "ModelStreamInfer", "stream_stream")
    sent = [infer_request(request, coords, feats, str(i)) for i in range(4)]
    replies = list(stream(iter(sent), timeout=SECONDS))
    assert sorted(r.infer_response.id for r in replies) == ["0", "1", "2", "3"]
    for one in replies:
        assert not one.error_message
        assert one.infer_response.raw_output_contents[0] == expected.tobytes()


def test_health_list(channel, pool):
    """List is newer than the stock stub, so its messages come from the reflection."""
    ask, request = call(channel, pool.FindServiceByName(HEALTH), "List")
    statuses = {name: one.status for name, one in
                ask(request(), timeout=SECONDS).statuses.items()}
    assert {"", SERVICE, "conv"} <= set(statuses) and set(statuses.values()) == {SERVING}


def test_health_from_asyncio(daemon):
    async def run():
        async with grpc.aio.insecure_channel(daemon.grpc) as one:
            health = health_pb2_grpc.HealthStub(one)
            replies = await asyncio.gather(*(health.Check(health_pb2.HealthCheckRequest(
                service=name), timeout=SECONDS) for name in ("", SERVICE, "conv") * 5))
            assert {r.status for r in replies} == {SERVING}
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await health.Check(health_pb2.HealthCheckRequest(service="nope"), timeout=SECONDS)
            assert caught.value.code() is grpc.StatusCode.NOT_FOUND
            watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=SECONDS)
            assert (await watch.read()).status == SERVING
            watch.cancel()
    asyncio.run(run())


def test_watch_follows_a_model_that_comes_and_goes(tmp_path):
    repository = tmp_path / "repository"
    ConvModel().write(repository)
    with Daemon(repository, tmp_path, "--model-control", "explicit", wait_ready=False) as daemon, \
            grpc.insecure_channel(daemon.grpc) as one, Client(daemon.grpc) as client:
        pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(one))
        service = pool.FindServiceByName(SERVICE)
        load, load_request = call(one, service, "RepositoryModelLoad")
        unload, unload_request = call(one, service, "RepositoryModelUnload")
        health = health_pb2_grpc.HealthStub(one)
        watch = health.Watch(health_pb2.HealthCheckRequest(service="conv"), timeout=2 * SECONDS)
        coords, feats = random_grid(61, 50)
        answers = []
        assert next(watch).status in (SERVICE_UNKNOWN, NOT_SERVING)
        for _ in range(3):
            load(load_request(model_name="conv"), timeout=SECONDS)
            status = next(watch).status
            while status != SERVING:  # NOT_SERVING while it loads
                assert status == NOT_SERVING
                status = next(watch).status
            answers.append(client.infer("conv", coords, feats)["out"])
            unload(unload_request(model_name="conv"), timeout=SECONDS)
            assert next(watch).status in (SERVICE_UNKNOWN, NOT_SERVING)
        watch.cancel()
        assert all(np.array_equal(a, answers[0]) for a in answers)
