# SPDX-License-Identifier: Apache-2.0
"""Geometries are kept in shares: who floods a worker with new ones makes it forget its own, and not
those of others. Each is an origin: a token, or without tokens an address."""
import concurrent.futures
import contextlib
import socket
import threading

import pytest
from tritonclient.grpc import service_pb2

import numpy as np
from access_rig import CODE, Asker, Tokens
from model_files import ConvModel
from voxeld_process import Daemon

KEPT = 20
FLOOD = 6000  # a worker has 4,096 places
VOXELS = 30


class Relay:
    """Passes connections on from another address of the loopback."""

    def __init__(self, to, source):
        host, port = to.rsplit(":", 1)
        self.to, self.source = (host, int(port)), (source, 0)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.open = [self.listener]
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in self.open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection(self.to, source_address=self.source)
                self.open += [near, far]
                for a, b in ((near, far), (far, near)):
                    threading.Thread(target=self.copy, args=(a, b), daemon=True).start()

    @staticmethod
    def copy(a, b):
        with contextlib.suppress(OSError):
            while data := a.recv(1 << 16):
                b.sendall(data)


class NoTokens:
    @staticmethod
    def of(_):
        return None


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    path = tmp_path_factory.mktemp("repository")
    ConvModel(warmup=[10]).write(path, "conv")
    return path


def request_of(number, voxels, ref=""):
    """The geometry of that number, or its name."""
    coords = np.zeros((voxels, 4), "<i4")
    coords[:, 1], coords[:, 2], coords[:, 3] = number % 1000, number // 1000, np.arange(voxels)
    request = service_pb2.ModelInferRequest(model_name="conv")
    tensors = [("feats", "FP32", np.ones((voxels, 4), "<f4"))]
    for name, kind, array in (tensors if ref else [("coords", "INT32", coords)] + tensors):
        request.inputs.add(name=name, datatype=kind, shape=array.shape)
        request.raw_input_contents.append(array.tobytes())
    request.parameters["coords_ref"].string_param = ref
    request.parameters["timing"].bool_param = True
    return request


def keep(asker, token):
    """Names of what is kept now."""
    names = []
    for number in range(KEPT):
        code, answer = asker.ask("ModelInfer", request_of(number, VOXELS), token)
        assert code is CODE.OK, answer
        names.append(answer.parameters["coords_ref"].string_param)
    assert len(set(names)) == KEPT
    return names


def flood(asker, token):
    def one(number):
        code, answer = asker.ask("ModelInfer", request_of(1000 + number, 1), token)
        assert code is CODE.OK, answer
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(FLOOD)))


def check(asker, token, names):
    for number, name in enumerate(names):
        code, answer = asker.ask("ModelInfer", request_of(number, VOXELS, name), token)
        assert code is CODE.OK, (number, answer)
        assert answer.parameters["geometry_hit"].bool_param


def test_a_token_that_floods_leaves_others_their_names(repository, tmp_path):
    tokens = Tokens(tmp_path).add("good").add("flood").write()
    with Daemon(repository, tmp_path, "--tokens", str(tokens.path)) as daemon, \
            Asker(daemon.grpc, tokens) as asker:
        names = keep(asker, "good")
        flood(asker, "flood")
        check(asker, "good", names)


def test_an_address_that_floods_leaves_others_their_names(repository, tmp_path):
    with Daemon(repository, tmp_path) as daemon, \
            Relay(daemon.grpc, "127.0.0.2") as relay, \
            Asker(daemon.grpc, NoTokens) as good, Asker(relay.address, NoTokens) as other:
        names = keep(good, None)
        check(other, None, names)  # a name is everybody's here, and who uses it takes nothing
        flood(other, None)
        check(good, None, names)
