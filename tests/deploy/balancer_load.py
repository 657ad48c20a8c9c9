# SPDX-License-Identifier: Apache-2.0
"""Clients of several kinds, a load of them, and which replica answered them."""

import contextlib
import queue
import struct
import threading
import time
import zlib

import grpc
import numpy as np
import tritonclient.grpc as triton

import deployed  # its path has voxeld and voxeld_process; pylint: disable=unused-import
from voxeld import Client, messages, secure, wire
from voxeld_process import PATIENCE

MODEL = "conv"
HEADER = "x-voxel-geometry"


def header(coords):
    """As deploy/haproxy/README.md tells the authors of clients."""
    some = [coords[i * len(coords) // 64] for i in range(64)] if len(coords) > 64 else coords
    head = struct.pack("<QQ", *coords.shape)
    return "%08x" % zlib.crc32(head + np.array(some, "<i4").tobytes())


class Triton:
    """NVIDIA's client, which sends the header that it is given."""

    def __init__(self, where, tls):
        options = {}
        if tls:
            options = {"ssl": True, "root_certificates": str(tls.ca)}
            options["channel_args"] = list(tls.options())
            if tls.cert:
                options.update(private_key=str(tls.key), certificate_chain=str(tls.cert))
        self.client = triton.InferenceServerClient(where, **options)

    def infer(self, coords, feats):
        inputs = [
            triton.InferInput("coords", coords.shape, "INT32"),
            triton.InferInput("feats", feats.shape, "FP32"),
        ]
        inputs[0].set_data_from_numpy(coords)
        inputs[1].set_data_from_numpy(feats)
        answer = self.client.infer(
            MODEL, inputs, headers={HEADER: header(coords)}, client_timeout=PATIENCE
        )
        return answer.as_numpy("out")

    def close(self):
        self.client.close()


def output(answer, rows):
    """Of a ModelInferResponse."""
    raw = [value for number, value in wire.fields(answer) if number == 6]
    return np.frombuffer(bytes(raw[0]), "<f4").reshape(rows, -1)


class Raw:
    """A channel and bytes, without the header."""

    def __init__(self, where, tls):
        options = (("grpc.use_local_subchannel_pool", 1),)
        self.channel = secure.channel_of(grpc, where, options, None, tls)
        self.call = self.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")

    def infer(self, coords, feats):
        answer = self.call(messages.pack_infer(MODEL, coords, feats, {}), timeout=PATIENCE)
        return output(answer, len(coords))

    def close(self):
        self.channel.close()


class Stream(Raw):
    """One ModelStreamInfer with a header, open until close()."""

    def __init__(self, where, tls, named):
        super().__init__(where, tls)
        self.requests = queue.Queue()
        call = self.channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        self.answers = call(
            iter(self.requests.get, None), metadata=((HEADER, named),), timeout=PATIENCE
        )

    def infer(self, coords, feats):
        self.requests.put(messages.pack_infer(MODEL, coords, feats, {}))
        fields = dict(wire.fields(next(self.answers)))
        assert 1 not in fields, fields[1]
        return output(fields[2], len(coords))

    def end(self):
        """Half-closes; the stream must end without an error."""
        self.requests.put(None)
        assert not list(self.answers)


class Ours:
    """Our client, with coordinates in each request or, where it can, their names."""

    def __init__(self, where, tls, names=False):
        self.client, self.names, self.known = Client(where, tls=tls), names, {}

    def infer(self, coords, feats):
        options = {}
        key = header(coords)
        if self.names:
            options = {"coords_ref": self.known.get(key, ""), "resend": True}
        answer = self.client.infer(MODEL, coords, feats, timeout=PATIENCE, **options)
        self.known[key] = answer.coords_ref
        return answer["out"]

    def close(self):
        self.client.close()


CLIENTS = (Ours, lambda where, tls: Ours(where, tls, names=True), Triton)


@contextlib.contextmanager
def opened(proxy, kinds=CLIENTS):
    """A client of each kind, of what has an address `grpc` and, for TLS, `tls`."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(contextlib.closing(kind(proxy.grpc, proxy.tls))) for kind in kinds
        ]


class Load:
    """A thread for each client, which sends every grid in turn and compares answers bit for bit."""

    def __init__(self, proxy, grids, kinds=(*CLIENTS, Raw)):
        self.grids, self.expected, self.stop = grids, {}, threading.Event()
        self.errors, self.done, self.pause = [], [0] * len(kinds), 0
        self.threads = [
            threading.Thread(target=self._run, args=(i, proxy, kind))
            for i, kind in enumerate(kinds)
        ]

    def _run(self, number, proxy, kind):
        at = number * 7
        with opened(proxy, [kind]) as (client,):
            while not self.stop.is_set() and not self.errors:
                index = at % len(self.grids)
                try:
                    out = client.infer(*self.grids[index])
                    if not np.array_equal(out, self.expected.setdefault(index, out)):
                        raise AssertionError(f"another answer for grid {index}")
                except Exception as error:  # whatever it is, the test reports it
                    self.errors.append((number, index, error))
                self.done[number] += 1
                at += 1
                if self.pause:
                    self.stop.wait(self.pause)

    @contextlib.contextmanager
    def slowly(self):
        """While a process starts and is looked at a few times: calls go on, and leave it a core."""
        self.pause = 0.02
        yield
        self.pause = 0

    def wait_progress(self, count=30):
        """Until each client has had that many more answers, or one has failed."""
        targets = [done + count for done in self.done]
        end = time.monotonic() + PATIENCE
        while any(a < b for a, b in zip(self.done, targets)) and not self.errors:
            assert time.monotonic() < end, (self.done, targets)
            time.sleep(0.01)  # sleep: between two looks
        assert not self.errors, self.errors

    def wait_stuck(self, proxy, kept, count=30):
        """Until a client waits for a replica that is stopped: it has no answer while another client
        has `count`, of the grid `kept`, which another replica answers.  What the stopped one had
        sent has arrived by then."""
        end = time.monotonic() + PATIENCE
        with opened(proxy, [Ours]) as (client,):
            while not self.errors:
                assert time.monotonic() < end, self.done
                before = list(self.done)
                for _ in range(count):
                    client.infer(*kept)
                if any(a == b for a, b in zip(before, self.done)):
                    break
        assert not self.errors, self.errors

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join()


def answered(replica):
    return sum(
        value
        for name, value in replica.metrics().items()
        if name.startswith("nv_inference_request_success")
    )


def misses(replica):
    return sum(
        value
        for name, value in replica.metrics().items()
        if name.startswith("voxeld_model_geometry_misses_total")
    )


def homes(proxy, replicas, grids, kinds=CLIENTS):
    """For each grid the replica's name that answered all of several clients' calls."""
    out = []
    with opened(proxy, kinds) as clients:
        counts = [answered(one) for one in replicas]
        for coords, feats in grids:
            before = counts
            for client in clients:
                client.infer(coords, feats)
            counts = [answered(one) for one in replicas]
            more = [now - old for now, old in zip(counts, before)]
            assert sorted(more) == [0] * (len(replicas) - 1) + [len(clients)], (more, len(out))
            out.append(replicas[more.index(len(clients))].name)
    return out
