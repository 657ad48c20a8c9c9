# SPDX-License-Identifier: Apache-2.0
"""What tests of tokens share: a file of tokens, calls with a token, pages with one."""
import hashlib
import json
import os
import subprocess
import urllib.error
import urllib.request

import grpc
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2_grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from model_files import random_grid
from voxeld_process import PATIENCE

NEVER = 1e-6  # a second: twelve days for one
GROUPS = ("infer", "read", "load", "settings", "memory", "admin")
CODE = grpc.StatusCode


class Tokens:
    """A file of tokens, and the tokens."""

    def __init__(self, folder):
        self.path = folder / "tokens.json"
        self.secrets, self.entries = {}, {}

    def add(self, name, methods=("infer", "read"), models=("*",), **more):
        token = self.secrets.setdefault(name, subprocess.run(
            [os.environ["VOXELD"], "token", "new", name], check=True, capture_output=True,
            text=True).stdout.strip())
        self.entries[name] = {"name": name, "sha256": hashlib.sha256(token.encode()).hexdigest(),
                              "models": list(models), "methods": list(methods), **more}
        return self

    def write(self, path=None):
        path = path or self.path
        following = path.with_suffix(".next")
        following.write_text("// tokens of a test\n"
                             + json.dumps({"tokens": list(self.entries.values())}, indent=1))
        following.chmod(0o600)
        following.rename(path)
        return self

    def of(self, name):
        """Metadata of a call; None = no token."""
        return None if name is None else (("authorization", f"Bearer {self.secrets[name]}"),)


def limit(**units):
    return {unit: {"per_second": NEVER, "burst": burst} for unit, burst in units.items()}


def request_of(model, voxels, seed=1):
    coords, feats = random_grid(seed, voxels)
    request = service_pb2.ModelInferRequest(model_name=model)
    for name, kind, array in (("coords", "INT32", coords), ("feats", "FP32", feats)):
        request.inputs.add(name=name, datatype=kind, shape=array.shape)
        request.raw_input_contents.append(array.tobytes())
    return request


class Asker:
    """Stubs of one connection."""

    def __init__(self, address, tokens):
        self.channel = grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
        self.inference = service_pb2_grpc.GRPCInferenceServiceStub(self.channel)
        self.health = health_pb2_grpc.HealthStub(self.channel)
        self.reflection = reflection_pb2_grpc.ServerReflectionStub(self.channel)
        # Bytes in and out: the stock package of Debian 12 does not know it.
        self.list = self.channel.unary_unary("/grpc.health.v1.Health/List")
        self.tokens = tokens

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def ask(self, method, request, token):
        """(code, sentence or answer)."""
        call = (self.list if method == "List" else
                getattr(self.health if method == "Check" else self.inference, method))
        try:
            return CODE.OK, call(request, timeout=PATIENCE, metadata=self.tokens.of(token))
        except grpc.RpcError as error:
            return error.code(), error.details()

    def infer(self, token, model="conv", voxels=50):
        return self.ask("ModelInfer", request_of(model, voxels), token)

    def stream(self, token, requests, strict=False):
        """(answers, end): each answer is its error, "" for none."""
        metadata = (self.tokens.of(token) or ()) + ((("triton_grpc_error", "true"),)
                                                    if strict else ())
        call = self.inference.ModelStreamInfer(iter(requests), timeout=PATIENCE,
                                               metadata=metadata)
        answers = []
        try:
            for answer in call:
                answers.append(answer.error_message)
        except grpc.RpcError:
            pass
        return answers, call.code(), call.details()


def page(daemon, path, header=None):
    """(status, body, challenge)."""
    question = urllib.request.Request(f"http://{daemon.http}{path}")
    if header:
        question.add_header("Authorization", header)
    try:
        with urllib.request.urlopen(question, timeout=PATIENCE) as reply:
            return reply.status, reply.read().decode(), None
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers.get("WWW-Authenticate")


def metrics(daemon, tokens):
    status, text, _ = page(daemon, "/metrics", f"Bearer {tokens.secrets['admin']}")
    assert status == 200, text
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
            for line in text.splitlines() if not line.startswith("#")}
