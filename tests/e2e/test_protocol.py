# SPDX-License-Identifier: Apache-2.0
"""The RPCs beside inference, health and reflection, called by stock clients."""
import json
import re
import threading

import grpc
import numpy as np
import pytest
from google.protobuf import descriptor_pool, json_format, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase)

import voxeld
from model_files import random_grid
from voxeld_process import PATIENCE

METHODS = ["ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata",
           "ModelInfer", "ModelStreamInfer", "ModelConfig", "ModelStatistics", "RepositoryIndex",
           "RepositoryModelLoad", "RepositoryModelUnload", "SystemSharedMemoryStatus",
           "SystemSharedMemoryRegister", "SystemSharedMemoryUnregister", "CudaSharedMemoryStatus",
           "CudaSharedMemoryRegister", "CudaSharedMemoryUnregister", "TraceSetting", "LogSettings"]
MEMORY = [name for name in METHODS if "SharedMemory" in name]  # off, unless it is turned on
SERVICE = "inference.GRPCInferenceService"


@pytest.fixture(scope="module")
def channel(daemon):
    with grpc.insecure_channel(daemon.grpc) as one:
        yield one


class Reflected:
    """Calls methods with only the descriptors from the server's reflection, as grpcurl does."""

    def __init__(self, channel):
        self.channel = channel
        self.pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        self.service = self.pool.FindServiceByName(SERVICE)

    def call(self, method, **fields):
        descriptor = self.service.methods_by_name[method]
        kinds = [message_factory.GetMessageClass(d)
                 for d in (descriptor.input_type, descriptor.output_type)]
        call = self.channel.unary_unary(f"/{SERVICE}/{method}",
                                        request_serializer=kinds[0].SerializeToString,
                                        response_deserializer=kinds[1].FromString)
        reply = call(json_format.ParseDict(fields, kinds[0]()), timeout=PATIENCE)
        return json_format.MessageToDict(reply, preserving_proto_field_name=True)


@pytest.fixture(scope="module")
def reflected(channel):
    return Reflected(channel)


def test_reflection_lists_every_service_and_method(channel, reflected):
    names = set(ProtoReflectionDescriptorDatabase(channel).get_services())
    assert {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection"} <= names
    assert [m.name for m in reflected.service.methods] and \
        set(reflected.service.methods_by_name) == set(METHODS)


def test_reflection_v1_answers_too(channel):
    """The same messages under the newer package; stock stubs speak v1alpha."""
    stream = channel.stream_stream(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString)
    questions = [reflection_pb2.ServerReflectionRequest(list_services=""),
                 reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE),
                 reflection_pb2.ServerReflectionRequest(file_by_filename="model_config.proto"),
                 reflection_pb2.ServerReflectionRequest(file_containing_symbol="no.such.Thing")]
    answers = list(stream(iter(questions), timeout=PATIENCE))
    assert len(answers) == 4
    assert SERVICE in [s.name for s in answers[0].list_services_response.service]
    assert len(answers[1].file_descriptor_response.file_descriptor_proto) == 2
    assert len(answers[2].file_descriptor_response.file_descriptor_proto) == 1
    assert answers[3].error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


def test_server_questions(reflected):
    assert reflected.call("ServerLive") == {"live": True}
    assert reflected.call("ServerReady") == {"ready": True}
    metadata = reflected.call("ServerMetadata")
    assert metadata["name"] == "voxeld" and metadata["version"]
    assert "statistics" in metadata["extensions"]
    assert "system_shared_memory" not in metadata["extensions"]


def test_model_questions(reflected):
    assert reflected.call("ModelReady", name="conv") == {"ready": True}
    assert reflected.call("ModelReady", name="conv", version="1") == {"ready": True}
    metadata = reflected.call("ModelMetadata", name="conv")
    assert metadata == {
        "name": "conv", "versions": ["1"], "platform": "voxeld",
        "inputs": [{"name": "coords", "datatype": "INT32", "shape": ["-1", "4"]},
                   {"name": "feats", "datatype": "FP32", "shape": ["-1", "4"]}],
        "outputs": [{"name": "out", "datatype": "FP32", "shape": ["-1", "3"]}]}
    config = reflected.call("ModelConfig", name="conv")["config"]
    assert config["name"] == "conv" and config.get("max_batch_size", 0) == 0
    assert [i["name"] for i in config["input"]] == ["coords", "feats"]
    assert config["output"][0]["dims"] == ["-1", "3"] and "dynamic_batching" in config


def test_what_is_not_there_is_not_ready(reflected):
    for fields in ({"name": "nope"}, {"name": "conv", "version": "9"}):
        assert not reflected.call("ModelReady", **fields).get("ready")


@pytest.mark.parametrize("method", ["ModelMetadata", "ModelConfig", "ModelStatistics"])
def test_unknown_models_and_versions(reflected, method):
    for fields, code in (({"name": "nope"}, "NOT_FOUND"),
                         ({"name": "conv", "version": "9"}, "NOT_FOUND"),
                         ({"name": "conv", "version": "x"}, "INVALID_ARGUMENT")):
        with pytest.raises(grpc.RpcError) as caught:
            reflected.call(method, **fields)
        assert caught.value.code().name == code, caught.value.details()
        assert len(caught.value.details()) > 10


def test_statistics_count_what_happened(client, reflected):
    def row():
        return {r["name"]: r for r in reflected.call("ModelStatistics")["model_stats"]}["conv"]
    coords, feats = random_grid(1, 100)
    before = row()
    for _ in range(3):
        client.infer("conv", coords, feats)
    with pytest.raises(voxeld.InvalidArgument):
        client.infer("conv", np.zeros((2, 4), np.int32), feats[:2])
    after = row()

    def grew(key, part="count"):
        def value(r):
            return int(r.get("inference_stats", {}).get(key, {}).get(part, 0))
        return value(after) - value(before)
    assert int(after["inference_count"]) - int(before.get("inference_count", 0)) == 3
    assert after["version"] == "1" and int(after["last_inference"]) > 1.6e12
    assert grew("success") == grew("queue") == grew("compute_infer") == 3 and grew("fail") == 1
    assert grew("success", "ns") > grew("compute_infer", "ns") > 0
    assert grew("cache_hit") == grew("cache_miss") == 0  # no response cache exists


@pytest.mark.parametrize("method", MEMORY)
def test_shared_memory_is_off_and_says_so(reflected, method):
    with pytest.raises(grpc.RpcError) as caught:
        reflected.call(method)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert method in caught.value.details() and len(caught.value.details()) > 30


@pytest.mark.parametrize("method", sorted(set(METHODS) - set(MEMORY) - {"ModelStreamInfer"}))
def test_every_other_method_is_served(reflected, method):
    """An empty request is answered, or refused for what it lacks."""
    try:
        reflected.call(method)
    except grpc.RpcError as error:
        assert error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND,
                                grpc.StatusCode.UNAVAILABLE), error.details()
        assert len(error.details()) > 10


def test_streamed_inference_is_served(channel):
    """An empty request is refused inside the stream, which goes on and ends with OK."""
    stream = channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")
    answers = list(stream(iter([b"", b""]), timeout=PATIENCE))
    assert len(answers) == 2 and all(b"model_name" in answer for answer in answers)


def test_timing_says_what_a_request_cost(client):
    coords, feats = random_grid(3, 400)
    answer = client.infer("conv", coords, feats, timing=True)
    said = answer.parameters
    assert {"queue_ns", "convert_ns", "geometry_ns", "compute_ns", "output_ns", "total_ns",
            "geometry_hit", "pairs", "set_voxels", "batch_size", "batch_voxels",
            "device"} <= set(said)
    assert said["pairs"] >= 400 and said["compute_ns"] > 0
    stages = sum(said[f"{stage}_ns"] for stage in ("queue", "convert", "geometry", "compute",
                                                    "output"))
    assert 0 < stages <= said["total_ns"]
    assert not client.infer("conv", coords, feats).parameters


def test_timing_can_say_what_each_layer_took(client):
    """The CPU's own name of its loops, or of a BLAS; only when asked for."""
    coords, feats = random_grid(3, 400)
    answer = client.infer("conv", coords, feats, timing="layers")
    assert re.fullmatch(r"(AVX-512|AVX2|baseline vectors): conv head", answer.parameters["layers"])
    assert answer.parameters["pairs"] >= 400
    assert "layers" not in client.infer("conv", coords, feats, timing=True).parameters
    with pytest.raises(voxeld.VoxeldError, match="expected true, false or \"layers\", got 'all'"):
        client.infer("conv", coords, feats, parameters={"timing": "all"})


def test_unknown_methods_do_not_hang(channel):
    for path in (f"/{SERVICE}/Nope", "/no.such.Service/Nope"):
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(path)(b"", timeout=PATIENCE)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_health_check(channel):
    health = health_pb2_grpc.HealthStub(channel)
    for service in ("", SERVICE, "conv"):
        reply = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE)
        assert reply.status == health_pb2.HealthCheckResponse.SERVING, service
    with pytest.raises(grpc.RpcError) as caught:
        health.Check(health_pb2.HealthCheckRequest(service="nope"), timeout=PATIENCE)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_health_watch(channel):
    health = health_pb2_grpc.HealthStub(channel)
    watch = health.Watch(health_pb2.HealthCheckRequest(service="conv"), timeout=PATIENCE)
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    watch.cancel()
    unknown = health.Watch(health_pb2.HealthCheckRequest(service="nope"), timeout=PATIENCE)
    assert next(unknown).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    unknown.cancel()


def test_admin_pages(daemon, client):
    client.infer("conv", *random_grid(2, 50))
    assert daemon.get("/v2/health/live")[0] == 200
    assert daemon.get("/v2/health/ready")[0] == 200
    assert daemon.get("/nope")[0] == 404
    status, page = daemon.get("/")
    assert status == 200 and "conv" in page and "<html" in page
    metrics = daemon.metrics()
    assert metrics['nv_inference_request_success{model="conv",version="1"}'] >= 1
    daemon.wait_for("the calls' end", lambda: daemon.metrics()["voxeld_calls_in_flight"] == 0)


def test_many_threads_share_a_client(client, model):
    errors = []

    def run(seed):
        try:
            for i in range(20):
                coords, feats = random_grid(seed * 100 + i, 30 + seed)
                out = client.infer("conv", coords, feats, timeout=PATIENCE)["out"]
                np.testing.assert_allclose(out, model.answer(coords, feats), rtol=2e-4, atol=2e-4)
        except Exception as error:  # noqa: BLE001 - reported below, from the test's own thread
            errors.append(error)
    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]
