# SPDX-License-Identifier: Apache-2.0
"""Tokens: every group of methods, every refusal, models, streams, limits, the admin port.  A
limit's rate is so low that nothing comes back during a test: counts follow from what it sends."""
import hashlib
import json
import threading

import grpc
import pytest
import voxeld
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from tritonclient.grpc import service_pb2

import numpy as np
from access_rig import CODE, GROUPS, Asker, Tokens, limit, metrics, page, request_of
from model_files import ConvModel, random_grid, write_safetensors
from voxeld_process import PATIENCE, Daemon


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    made = Tokens(tmp_path_factory.mktemp("tokens"))
    for group in GROUPS:
        made.add(group, [group])
    made.add("some", GROUPS, ["conv", "street-*"]).add("all", GROUPS)
    made.add("five", limits=limit(requests=5)).add("five-stream", limits=limit(requests=5))
    made.add("voxels", limits=limit(voxels=1000)).add("bytes", limits=limit(bytes=5000))
    made.add("five-wrong", limits=limit(requests=5))
    made.add("bytes-wrong", limits=limit(bytes=5000))
    made.add("old", GROUPS, expires="2020-01-01T00:00:00Z")
    return made.write()


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    path = tmp_path_factory.mktemp("repository")
    for seed, name in enumerate(("conv", "other", "street-1")):
        ConvModel(seed=1 + seed).write(path, name)
    return path


@pytest.fixture(scope="module")
def daemon(repository, tokens, tmp_path_factory):
    with Daemon(repository, tmp_path_factory.mktemp("daemon"), "--tokens", str(tokens.path),
                "--model-control", "explicit", "--load-model", "*", "--client-shm", "local",
                "--token-admin", "--access-log") as one:
        yield one
        log = one.log()
        assert not [name for name, token in tokens.secrets.items() if token in log]


@pytest.fixture(scope="module")
def asker(daemon, tokens):
    with Asker(daemon.grpc, tokens) as one:
        yield one


# ------- methods and models -------

# Each method: its group, and a message that is answered OK, or refused for another reason.
METHODS = {
    "ServerLive": ("health", service_pb2.ServerLiveRequest()),
    "ServerReady": ("health", service_pb2.ServerReadyRequest()),
    "Check": ("health", health_pb2.HealthCheckRequest()),
    "List": ("read", b""),
    "ModelReady": ("read", service_pb2.ModelReadyRequest(name="conv")),
    "ServerMetadata": ("read", service_pb2.ServerMetadataRequest()),
    "ModelMetadata": ("read", service_pb2.ModelMetadataRequest(name="conv")),
    "ModelConfig": ("read", service_pb2.ModelConfigRequest(name="conv")),
    "ModelStatistics": ("read", service_pb2.ModelStatisticsRequest(name="conv")),
    "RepositoryIndex": ("read", service_pb2.RepositoryIndexRequest()),
    "ModelInfer": ("infer", request_of("conv", 20)),
    "RepositoryModelLoad": ("load", service_pb2.RepositoryModelLoadRequest(model_name="conv")),
    "RepositoryModelUnload": ("load",
                              service_pb2.RepositoryModelUnloadRequest(model_name="none")),
    "TraceSetting": ("settings", service_pb2.TraceSettingRequest()),
    "LogSettings": ("settings", service_pb2.LogSettingsRequest()),
    "SystemSharedMemoryStatus": ("memory", service_pb2.SystemSharedMemoryStatusRequest()),
    "SystemSharedMemoryRegister": ("memory", service_pb2.SystemSharedMemoryRegisterRequest()),
    "SystemSharedMemoryUnregister": ("memory",
                                     service_pb2.SystemSharedMemoryUnregisterRequest()),
    "CudaSharedMemoryStatus": ("memory", service_pb2.CudaSharedMemoryStatusRequest()),
    "CudaSharedMemoryRegister": ("memory", service_pb2.CudaSharedMemoryRegisterRequest()),
    "CudaSharedMemoryUnregister": ("memory", service_pb2.CudaSharedMemoryUnregisterRequest()),
}


def test_every_method_is_here():
    service = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    health = health_pb2.DESCRIPTOR.services_by_name["Health"]
    names = {m.name for m in service.methods} | {m.name for m in health.methods}
    assert names | {"List"} == set(METHODS) | {"ModelStreamInfer", "Watch"}


@pytest.mark.parametrize("method", METHODS)
def test_a_method_needs_its_group(asker, method):
    group, request = METHODS[method]
    code, sentence = asker.ask(method, request, None)
    if group == "health":
        assert code is CODE.OK
    else:
        assert code is CODE.UNAUTHENTICATED and sentence.startswith("no token came: expected")
    for name in GROUPS:
        code, sentence = asker.ask(method, request, name)
        if group in (name, "health"):
            assert code not in (CODE.UNAUTHENTICATED, CODE.PERMISSION_DENIED), sentence
        else:
            assert code is CODE.PERMISSION_DENIED
            assert sentence == (f"token '{name}' does not permit {method}, of the methods "
                                f"'{group}'; it permits: {name}")


def test_wrong_tokens(asker, tokens):
    for value, sentence in (("Bearer " + "x" * 43, "the token is not known here, or no longer"),
                            ("Bearer " + tokens.secrets["all"][:-1], "the token is not known"),
                            ("Bearer short", "expected a token of 32 to 256 characters"),
                            ("Bearer " + "x" * 300, "expected a token of 32 to 256 characters"),
                            ("Basic " + tokens.secrets["all"], "to be 'Bearer TOKEN'"),
                            (tokens.secrets["all"], "to be 'Bearer TOKEN'"),
                            ("", "to be 'Bearer TOKEN'")):
        for method in ("ModelInfer", "ServerLive", "RepositoryIndex"):  # a probe's, too
            with pytest.raises(grpc.RpcError) as caught:
                getattr(asker.inference, method)(METHODS[method][1], timeout=PATIENCE,
                                                 metadata=(("authorization", value),))
            assert caught.value.code() is CODE.UNAUTHENTICATED
            assert sentence in caught.value.details()
            assert tokens.secrets["all"][:20] not in caught.value.details()
    assert asker.infer("old") == (CODE.UNAUTHENTICATED,
                                  "token 'old' has expired: expected one that is still valid")
    assert asker.inference.ServerLive(METHODS["ServerLive"][1],
                                      metadata=(("authorization", "bearer  "
                                                 + tokens.secrets["infer"]),)).live


def test_streams_of_health_and_reflection(asker, tokens):
    def watch(token, service=""):
        call = asker.health.Watch(health_pb2.HealthCheckRequest(service=service),
                                  timeout=PATIENCE, metadata=tokens.of(token))
        try:
            return CODE.OK, next(iter(call)).status
        except grpc.RpcError as error:
            return error.code(), error.details()
        finally:
            call.cancel()

    def reflect(token):
        questions = [reflection_pb2.ServerReflectionRequest(list_services="")]
        try:
            return CODE.OK, len(list(asker.reflection.ServerReflectionInfo(
                iter(questions), timeout=PATIENCE, metadata=tokens.of(token))))
        except grpc.RpcError as error:
            return error.code(), error.details()
    for ask in (watch, reflect):
        assert ask(None)[0] is CODE.UNAUTHENTICATED
        assert ask("infer")[0] is CODE.PERMISSION_DENIED
        assert ask("read") == (CODE.OK, 1)
    assert watch("some", "conv") == (CODE.OK, 1)
    assert watch("some", "other")[0] is CODE.PERMISSION_DENIED


NAMING = {
    "ModelInfer": lambda name: request_of(name, 20),
    "ModelReady": lambda name: service_pb2.ModelReadyRequest(name=name),
    "ModelMetadata": lambda name: service_pb2.ModelMetadataRequest(name=name),
    "ModelConfig": lambda name: service_pb2.ModelConfigRequest(name=name),
    "ModelStatistics": lambda name: service_pb2.ModelStatisticsRequest(name=name),
    "TraceSetting": lambda name: service_pb2.TraceSettingRequest(model_name=name),
    "RepositoryModelUnload":
        lambda name: service_pb2.RepositoryModelUnloadRequest(model_name=name),
    "RepositoryModelLoad": lambda name: service_pb2.RepositoryModelLoadRequest(model_name=name),
    "Check": lambda name: health_pb2.HealthCheckRequest(service=name),
}


@pytest.mark.parametrize("method", NAMING)
def test_a_model_needs_permission(asker, method):
    make = NAMING[method]
    assert asker.ask(method, make("other"), "some") == (
        CODE.PERMISSION_DENIED, "token 'some' does not permit model 'other'")
    # Whether there is such a model makes no difference.
    assert asker.ask(method, make("secret"), "some") == (
        CODE.PERMISSION_DENIED, "token 'some' does not permit model 'secret'")
    if method != "RepositoryModelUnload":
        assert asker.ask(method, make("street-1"), "some")[0] is CODE.OK
    code, sentence = asker.ask(method, make("street-none"), "some")
    assert code in (CODE.NOT_FOUND, CODE.OK)
    if code is CODE.NOT_FOUND:  # and the error names no other model
        assert "street-none" in sentence and "conv" not in sentence and "other" not in sentence
    if method == "Check":
        assert asker.ask(method, make("conv"), None)[0] is CODE.UNAUTHENTICATED


def test_kserve_spells_a_models_name_as_the_repositorys(asker):
    for method in ("RepositoryModelLoad", "RepositoryModelUnload"):
        kind = getattr(service_pb2, method + "Request")
        assert asker.ask(method, kind(repository_name="other"), "some")[0] \
            is CODE.PERMISSION_DENIED


def test_lists_have_only_what_a_token_may_name(asker):
    for token, models in (("some", {"conv", "street-1"}), ("all", {"conv", "other", "street-1"})):
        index = asker.ask("RepositoryIndex", service_pb2.RepositoryIndexRequest(), token)[1]
        assert {m.name for m in index.models} == models
        statistics = asker.ask("ModelStatistics", service_pb2.ModelStatisticsRequest(), token)[1]
        assert {m.name for m in statistics.model_stats} == models
        listed = asker.ask("List", b"", token)[1]
        assert {name for name in ("conv", "other", "street-1") if name.encode() in listed} == models


def test_answers_are_the_same(asker, tokens, daemon, model):
    coords, feats = random_grid(3, 300)
    with voxeld.Client(daemon.grpc, token=tokens.secrets["some"]) as client:
        answer = client.infer("conv", coords, feats)["out"]
        assert np.allclose(answer, model.answer(coords, feats), atol=1e-4)
        assert client.server_metadata()["name"] == "voxeld"
        with pytest.raises(voxeld.PermissionDenied):
            client.infer("other", coords, feats)
    with voxeld.Client(daemon.grpc) as client:
        assert client.server_live() and client.server_ready()
        with pytest.raises(voxeld.Unauthenticated):
            client.infer("conv", coords, feats)


# ------- streams -------

def test_a_stream_is_asked_for_each_message(asker):
    good, bad = request_of("conv", 20), request_of("other", 20)
    answers, code, _ = asker.stream("some", [good, bad, good])
    assert code is CODE.OK
    assert answers == ["", "token 'some' does not permit model 'other'", ""]
    answers, code, sentence = asker.stream("some", [good, bad, good], strict=True)
    assert (answers, code, sentence) == ([""], CODE.PERMISSION_DENIED,
                                         "token 'some' does not permit model 'other'")
    assert asker.stream(None, [good])[:2] == ([], CODE.UNAUTHENTICATED)
    assert asker.stream("read", [good])[:2] == ([], CODE.PERMISSION_DENIED)


def test_requests_of_a_stream_are_counted(asker, daemon, tokens):
    answers, code, _ = asker.stream("five-stream", [request_of("conv", 20)] * 9)
    assert code is CODE.OK and answers[:5] == [""] * 5 and len(answers) == 9
    for sentence in answers[5:]:
        assert sentence.startswith("token 'five-stream' has used its limit of 1e-06 requests per "
                                   "second; try again in about ")
    assert asker.infer("five-stream")[0] is CODE.RESOURCE_EXHAUSTED  # the same bucket
    seen = metrics(daemon, tokens)
    assert seen['voxeld_token_requests_total{token="five-stream"}'] == 5
    assert seen['voxeld_token_refused_total{token="five-stream",reason="requests"}'] == 5


# ------- limits -------

@pytest.mark.races
def test_requests_are_limited_whoever_sends_them(daemon, tokens):
    """Connections and threads share the token's bucket."""
    codes = []

    def run():
        with Asker(daemon.grpc, tokens) as own:
            for _ in range(5):
                codes.append(own.infer("five")[0])
    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(c.name for c in codes) == ["OK"] * 5 + ["RESOURCE_EXHAUSTED"] * 25
    with Asker(daemon.grpc, tokens) as own:
        assert own.ask("RepositoryIndex", service_pb2.RepositoryIndexRequest(), "five")[0] \
            is CODE.RESOURCE_EXHAUSTED
        assert own.ask("ServerLive", service_pb2.ServerLiveRequest(), "five")[0] is CODE.OK


def test_voxels_are_limited(asker, daemon, tokens):
    codes = [asker.infer("voxels", voxels=400)[0] for _ in range(5)]
    assert codes == [CODE.OK] * 3 + [CODE.RESOURCE_EXHAUSTED] * 2
    code, sentence = asker.infer("voxels", voxels=1)
    assert code is CODE.RESOURCE_EXHAUSTED and "voxels per second" in sentence
    seen = metrics(daemon, tokens)
    assert seen['voxeld_token_voxels_total{token="voxels"}'] == 1200
    assert seen['voxeld_token_refused_total{token="voxels",reason="voxels"}'] == 3


def test_bytes_are_limited(asker, daemon, tokens):
    request = request_of("conv", 60)
    size = request.ByteSize()
    assert 5000 // 3 < size < 5000 / 2  # so the third message is the last
    codes = [asker.ask("ModelInfer", request, "bytes")[0] for _ in range(5)]
    assert codes == [CODE.OK] * 3 + [CODE.RESOURCE_EXHAUSTED] * 2
    assert metrics(daemon, tokens)['voxeld_token_bytes_total{token="bytes"}'] == 3 * size


def wrong_request():
    request = request_of("conv", 60)
    request.raw_input_contents[1] += b"more"
    return request


def test_messages_that_cannot_be_read_are_paid_for(asker, daemon, tokens):
    """Their bytes have come, and those of a stream are requests: they were free before."""
    request, mismatch = wrong_request(), "input byte size mismatch for input 'feats'"
    answers, code, _ = asker.stream("five-wrong", [request] * 9)
    assert code is CODE.OK and len(answers) == 9
    assert [mismatch in a for a in answers] == [True] * 5 + [False] * 4
    assert ["requests per second" in a for a in answers] == [False] * 5 + [True] * 4
    said = [asker.ask("ModelInfer", request, "bytes-wrong") for _ in range(5)]
    assert [code for code, _ in said] == [CODE.INVALID_ARGUMENT] * 3 + [CODE.RESOURCE_EXHAUSTED] * 2
    seen = metrics(daemon, tokens)
    assert seen['voxeld_token_requests_total{token="five-wrong"}'] == 5
    assert seen['voxeld_token_bytes_total{token="five-wrong"}'] == 9 * request.ByteSize()
    assert seen['voxeld_token_bytes_total{token="bytes-wrong"}'] == 3 * request.ByteSize()


@pytest.mark.races
def test_limits_of_connections(repository, tmp_path):
    """Without tokens each connection has limits of its own; a new one begins anew."""
    with Daemon(repository, tmp_path, "--connection-voxels", "1", "--connection-burst-ms",
                "1000000") as daemon:
        for _ in range(3):
            with Asker(daemon.grpc, Tokens(tmp_path)) as one:
                codes = [one.infer(None, voxels=400)[0] for _ in range(5)]
                assert codes == [CODE.OK] * 3 + [CODE.RESOURCE_EXHAUSTED] * 2
                sentence = one.infer(None, voxels=400)[1]
                assert sentence.startswith("this connection has used its limit of 1 voxels per "
                                           "second; try again in about ")
                assert one.ask("ModelReady", METHODS["ModelReady"][1], None)[0] is CODE.OK
        seen = daemon.metrics()
        assert seen['voxeld_token_refused_total{token="",reason="voxels"}'] == 9
        assert seen['voxeld_token_voxels_total{token=""}'] == 3 * 1200


def test_a_failed_request_pays_for_the_sets_that_it_made(tmp_path):
    """40 voxels have 320 children, and those 2,560: more than limits.sets allows.  The 320 were
    made, and looked at to count theirs."""
    network = {
        "format": 1, "inputs": {"feats": {"channels": 8}}, "outputs": [{"layer": "g"}],
        "layers": [{"name": "o", "op": "affine", "input": "feats"},
                   {"name": "u", "op": "upsample", "input": "feats", "stride": 2,
                    "occupancy": "o"},
                   {"name": "u2", "op": "upsample", "input": "u", "stride": 2},
                   {"name": "g", "op": "global_pool", "input": "u2", "mode": "max"}],
        "limits": {"voxels_max": 100, "sets": {"u": 400, "u2": 2559}}}
    folder = tmp_path / "repository" / "grows"
    (folder / "1").mkdir(parents=True)
    (folder / "network.json").write_text(json.dumps(network))
    write_safetensors(folder / "1" / "weights.safetensors", {})
    coords = np.zeros((40, 4), np.int32)
    coords[:, 3] = np.arange(40)
    feats = np.ones((40, 8), np.float32)
    with Daemon(tmp_path / "repository", tmp_path, "--connection-voxels", "1",
                "--connection-burst-ms", "600000") as daemon, \
            voxeld.Client(daemon.grpc) as client:
        with pytest.raises(voxeld.VoxeldError, match='set 2, made by layer "u2", has 2560 voxels; '
                                                     'limits.sets allows 2559'):
            client.infer("grows", coords, feats, timeout=PATIENCE)
        assert daemon.metrics()['voxeld_token_voxels_total{token=""}'] == 40 + 320 + 320
        with pytest.raises(voxeld.VoxeldError, match="this connection has used its limit of 1 "):
            client.infer("grows", coords[:1], feats[:1], timeout=PATIENCE)
        assert daemon.metrics()['voxeld_token_voxels_total{token=""}'] == 40 + 320 + 320


# ------- the admin port, logs and metrics -------

@pytest.mark.races
def test_the_admin_port(daemon, tokens):
    admin = f"Bearer {tokens.secrets['admin']}"
    for path in ("/", "/metrics", "/v2/models/conv/ready", "/nothing"):
        status, text, challenge = page(daemon, path)
        assert (status, challenge) == (401, "Bearer") and text.startswith("no token came")
        status, text, _ = page(daemon, path, "Bearer " + "x" * 43)
        assert status == 401 and "not known" in text
        status, text, _ = page(daemon, path, f"Bearer {tokens.secrets['infer']}")
        assert status == 403 and "does not permit the admin port" in text
        assert page(daemon, path, admin)[0] in (200, 404)
    assert page(daemon, "/metrics", "Bearer " + "x" * 400)[0] == 431
    assert page(daemon, "/v2/health/live")[:2] == (200, '{"live":true}\n')
    assert page(daemon, "/v2/health/ready")[:2] == (200, '{"ready":true}\n')
    assert page(daemon, "/v2/health/ready", admin)[0] == 200
    assert page(daemon, "/v2/health/ready", "Bearer " + "x" * 43)[0] == 401


def test_reasons_name_models_only_to_admins(repository, tmp_path):
    tokens = Tokens(tmp_path).add("admin", ["admin"]).write()
    own = tmp_path / "repository"
    ConvModel().write(own, "secret")
    (own / "secret" / "network.json").write_text("{")
    with Daemon(own, tmp_path, "--tokens", str(tokens.path), "--token-admin",
                wait_ready=False) as daemon:
        daemon.wait_said("MODEL_FAILED")
        assert page(daemon, "/v2/health/ready")[:2] == (503, '{"ready":false}\n')
        status, text, _ = page(daemon, "/v2/health/ready", f"Bearer {tokens.secrets['admin']}")
        assert status == 503 and "secret" in text


def test_the_log_has_names_and_no_tokens(daemon, asker, tokens):
    request = request_of("conv", 20)
    request.id = "the-one-in-the-log"
    assert asker.ask("ModelInfer", request, "infer")[0] is CODE.OK
    daemon.wait_said("the-one-in-the-log")
    line, = [line for line in daemon.log().splitlines() if "the-one-in-the-log" in line]
    assert " ACCESS " in line and " token=infer " in line
    assert asker.ask("ModelInfer", request_of("other", 20), "some")[0] is CODE.PERMISSION_DENIED
    daemon.wait_said("token=some version=0 model=other")
    daemon.wait_said("TOKEN_REFUSED")
    for token in tokens.secrets.values():
        assert token not in daemon.log()
        assert hashlib.sha256(token.encode()).hexdigest() not in daemon.log()


def test_metrics(daemon, asker, tokens):
    before = metrics(daemon, tokens)
    assert asker.infer("infer", voxels=30)[0] is CODE.OK
    assert asker.ask("LogSettings", METHODS["LogSettings"][1], "infer")[0] \
        is CODE.PERMISSION_DENIED
    assert asker.infer(None)[0] is CODE.UNAUTHENTICATED
    after = metrics(daemon, tokens)

    def grew(series):
        return after[series] - before[series]
    assert grew('voxeld_token_requests_total{token="infer"}') == 1
    assert grew('voxeld_token_voxels_total{token="infer"}') == 30
    assert grew('voxeld_token_bytes_total{token="infer"}') == request_of("conv", 30).ByteSize()
    assert grew('voxeld_token_refused_total{token="infer",reason="method"}') == 1
    assert grew('voxeld_token_refused_total{token="",reason="none"}') == 1
    names = {s for s in after if s.startswith("voxeld_token_requests_total")}
    assert names == {f'voxeld_token_requests_total{{token="{n}"}}'
                     for n in (*tokens.entries, "")}
