# SPDX-License-Identifier: Apache-2.0
"""A caller that fills its arrays with the next grid while a call runs: the answer is that of the
grid that was passed, and no name is learnt for another one.

A server that answers as it is told makes the moment: what it calls `meanwhile` happens when the
request has arrived, before its answer."""
import asyncio
import threading
import tracemalloc

import numpy as np
import pytest

from test_geometry_names import COORDS, FEATS, SUMS, NamingServer
from test_lying_server import OUT, head, raw, tensor
from voxeld import AsyncClient, Client, columns, geometry, wire
from voxeld.inference import Inference
from voxeld.region import Memory
from voxeld_process import PATIENCE


class Meanwhile(NamingServer):
    """Calls `meanwhile` once, in the next request; keeps the bytes of all."""

    def __init__(self):
        super().__init__()
        self.meanwhile, self.requests = None, []

    def _infer(self, request, context):
        self.requests.append(request)
        now, self.meanwhile = self.meanwhile, None
        if now:
            now()
        return super()._infer(request, context)


@pytest.fixture
def server():
    with Meanwhile() as one:
        yield one


class Asyncio:
    """An AsyncClient with the methods of a Client."""

    def __init__(self, address):
        async def make():
            return AsyncClient(address)
        self._loop = asyncio.new_event_loop()
        self._client = self._loop.run_until_complete(make())

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self._loop.run_until_complete(self._client.close())
        self._loop.close()

    def infer(self, *args, **options):
        return self._loop.run_until_complete(self._client.infer(*args, **options))


def next_grid(coords, feats):
    coords[:, 1:] *= 2
    feats *= 3


def sums(coords, feats):
    return coords.sum(axis=1, keepdims=True) + feats


KINDS = [Client, Asyncio]
TYPES = [np.int32, np.int64]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", TYPES)
def test_a_name_stands_for_the_coords_that_were_sent(server, kind, dtype):
    coords, feats = COORDS.astype(dtype), FEATS.copy()
    server.meanwhile = lambda: next_grid(coords, feats)
    with kind(server.address) as client:
        def infer(*grid, name):
            return client.infer("sums", *grid, coords_ref=name, resend=True, timeout=PATIENCE)
        first = infer(coords, feats, name="")
        np.testing.assert_array_equal(first["out"], SUMS)
        second = infer(coords, feats, name=first.coords_ref)
        np.testing.assert_array_equal(second["out"], sums(COORDS * [1, 2, 2, 2], FEATS * 3))
        assert server.seen == [(True, ""), (True, "")] and second.coords_ref != first.coords_ref
        # The first name is that of the first grid, and both are known by now.
        for grid, name in ((COORDS, first.coords_ref), (coords, second.coords_ref)):
            infer(grid, feats, name=name)
            assert server.seen[-1] == (False, name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("half", [False, True])
def test_what_is_sent_again_is_what_was_passed(server, kind, dtype, half):
    coords, feats = COORDS.astype(dtype), FEATS.astype(np.float16 if half else np.float32)
    parameters = {"a": 1}

    def now():
        server.known.clear()
        next_grid(coords, feats)
        parameters["a"] = 2
    with kind(server.address) as client:
        def infer(*grid, name):
            return client.infer("sums", *grid, coords_ref=name, resend=True, timeout=PATIENCE,
                                parameters=parameters)
        name = infer(coords, feats, name="").coords_ref
        server.meanwhile = now
        answer = infer(coords, feats, name=name)
        np.testing.assert_array_equal(answer["out"], SUMS)
        assert server.seen == [(True, ""), (False, name), (True, "")]
        named, again = ([value for at, value in wire.fields(one) if at == 4]
                        for one in server.requests[1:])
        assert bytes(named[0]) == bytes(again[0]) == bytes(
            wire.text(1, "a") + wire.message(2, wire.number(2, 1)))
        infer(COORDS, feats, name=answer.coords_ref)
        assert server.seen[-1] == (False, answer.coords_ref)


def test_bfloat16_is_sent_again_as_it_was(server):
    """The fake server knows no BF16; its request is compared with one that had the coords."""
    feats = FEATS * np.float32(0.1)
    one = Inference("sums", COORDS, feats, {"bf16": True, "coords_ref": ""}, Nobody())
    client = Nobody()
    client._names.learn("n", COORDS)
    two = Inference("sums", COORDS, feats, {"bf16": True, "coords_ref": "n", "resend": True},
                    client)
    assert two.data != one.data and two.send_coords() and two.data == one.data
    assert not two.send_coords() and not one.send_coords()


def test_threads_share_a_buffer_and_no_name_is_wrong(server):
    """One thread fills the buffer all the time.  Of the grid that it was filled with meanwhile an
    answer may be; a name never stands for another grid than the server's."""
    coords, feats, ends = COORDS.copy(), np.zeros((3, 1), np.float32), threading.Event()

    def fill():
        while not ends.is_set():
            coords[:, 1] += 1
            coords[:, 1] %= 100
    filler = threading.Thread(target=fill)
    filler.start()
    with Client(server.address) as client:
        try:
            names = [client.infer("sums", coords, feats, coords_ref="", resend=True,
                                  timeout=PATIENCE).coords_ref for _ in range(50)]
        finally:
            ends.set()
            filler.join()
        for name in names:
            assert client._names.stands_for(name, server.known[name])


class Nobody:
    """What an Inference reads of a client: one without a server, which may have a region."""

    def __init__(self, *regions):
        self._names, self._regions = geometry.Names(), list(regions)


def reply(name="name"):
    return (head() + wire.message(4, wire.text(1, "coords_ref") + wire.message(
        2, wire.message(3, name.encode()))) + tensor() + raw(OUT.tobytes()))


@pytest.fixture
def memory():
    one = Memory(64 << 20)
    one._make()
    one._unlink()
    yield one
    one._release()


@pytest.mark.parametrize("changes", [False, True])
def test_coords_in_a_region_that_change_meanwhile_get_no_name(memory, changes):
    """The server may have read either of the two."""
    client, coords = Nobody(memory), memory.put(COORDS)
    one = Inference("sums", coords, FEATS, {"coords_ref": "", "id": "7"}, client)
    if changes:
        coords[0, 1] += 1
    assert one.read(reply()).coords_ref == "name"
    assert client._names.stands_for("name", COORDS) != changes
    assert not changes or not client._names.stands_for("name", coords)


ROWS = 1 << 19   # coords are 8 MB, feats 2 MB: a copy of either shows among all that is small
BIG = np.zeros((ROWS, 4), np.int32)
BIG[:, 1] = np.arange(ROWS) % 1000
# How the arrays are passed: copies of coords and of feats that are held until the answer, each one
# part of the request or kept to be sent again.
COPIES = {"sent": (1, 1), "sent with a name": (1, 1), "by a known name": (1, 1),
          "by a known name, converted": (1, 1), "by a known name, in a region": (0, 0),
          "sent, in a region": (0, 0), "by a name alone": (0, 1)}


@pytest.mark.parametrize("how", COPIES)
def test_no_array_is_copied_that_need_not_be(memory, how):
    client, coords, feats = Nobody(memory), BIG, np.ones((ROWS, 1), np.float32)
    client._names.learn("known", BIG)
    options = {"coords_ref": "known" if "known" in how else "", "resend": True}
    if "region" in how:
        coords, feats = memory.put(coords), memory.put(feats)
    if "converted" in how:
        coords = coords.astype(np.int64)
    if how == "by a name alone":
        coords, options = None, {"coords_ref": "known"}
    tracemalloc.start()
    try:
        one = Inference("sums", coords, feats, {} if how == "sent" else options, client)
        one.metadata(None)
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    expected = sum(n * size for n, size in zip(COPIES[how], (BIG.nbytes, feats.nbytes)))
    assert expected <= held < expected + (1 << 18) and most < expected + (1 << 21), (held, most)


def test_columns_are_looked_at_whatever_holds_them(server):
    """A matrix, whose columns have two axes, and a list."""
    wrong = [[x, y, 1, 0] for x in range(40) for y in range(2)]
    for coords in (np.array(wrong).view(np.matrix), wrong):
        assert columns.sample_is_last(np.asarray(coords))
        with Client(server.address) as client, pytest.warns(UserWarning, match="coords: column 0"):
            client.infer("sums", coords, np.ones((80, 1), np.float32), timeout=PATIENCE)
