# SPDX-License-Identifier: Apache-2.0
"""x-voxel-geometry, by which a load balancer keeps a geometry on one server: the same text from
every client, for coords and for their name.  Here a server writes down what it is sent; the
balancer is in tests/deploy/test_haproxy.py."""

import asyncio
import os
import subprocess

import numpy as np
import pytest

from test_geometry_names import COORDS, FEATS, NamingServer
from voxeld import AsyncClient, Client, geometry
from voxeld_process import PATIENCE


class Listener(NamingServer):
    """`headers`: the values of x-voxel-geometry of each inference, in their order."""

    def __init__(self):
        super().__init__()
        self.headers = []

    def _infer(self, request, context):
        sent = [value for key, value in context.invocation_metadata() if key == geometry.HEADER]
        self.headers.append(sent)
        return super()._infer(request, context)


@pytest.fixture
def server():
    with Listener() as one:
        yield one


def cli(server, tmp_path, *options):
    np.savez(tmp_path / "grid.npz", coords=COORDS, feats=FEATS)
    return subprocess.run(
        [os.environ["VOXEL"], *options, "--server", server.address, "--model", "sums"]
        + [str(tmp_path / "grid.npz")],
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    ).stdout


def test_every_client_sends_the_same(server, tmp_path):
    async def infer():
        async with AsyncClient(server.address) as client:
            await client.infer("sums", COORDS, FEATS, timeout=PATIENCE)

    with Client(server.address) as client:
        client.infer("sums", COORDS, FEATS, timeout=PATIENCE)
        client.infer("sums", COORDS.astype(np.int64).tolist(), FEATS, timeout=PATIENCE)
    asyncio.run(infer())
    cli(server, tmp_path, "infer")
    cli(server, tmp_path, "bench", "--requests", "2", "--warmup", "0")
    assert len(server.headers) >= 6
    assert all(sent == [geometry.header(COORDS)] for sent in server.headers), server.headers


def test_a_name_goes_where_its_coords_went(server, tmp_path):
    with Client(server.address) as client:
        name = client.infer("sums", COORDS, FEATS, coords_ref="", timeout=PATIENCE).coords_ref
        client.infer("sums", None, FEATS, coords_ref=name, timeout=PATIENCE)
        client.infer("sums", COORDS, FEATS, coords_ref=name, resend=True, timeout=PATIENCE)
        server.known.clear()
        client.infer("sums", COORDS, FEATS, coords_ref=name, resend=True, timeout=PATIENCE)
    printed = cli(server, tmp_path, "infer", "--name-geometry", "--quiet").strip()
    cli(server, tmp_path, "infer", "--coords-ref", printed)
    cli(server, tmp_path, "infer", "--coords-ref", printed, "--resend")
    assert [came for came, _ in server.seen] == [1, 0, 0, 0, 1, 1, 0, 0]
    assert all(sent == [geometry.header(COORDS)] for sent in server.headers), server.headers


def test_who_sends_none(server, tmp_path):
    """Who does not want it, and a name that another client got.  The caller's own header stands."""
    with Client(server.address) as client:
        name = client.infer("sums", COORDS, FEATS, coords_ref="", timeout=PATIENCE).coords_ref
        own = ((geometry.HEADER, "mine"), ("a", "b"))
        client.infer("sums", COORDS, FEATS, metadata=own, timeout=PATIENCE)
        client.infer("sums", COORDS, FEATS, metadata=dict(own), timeout=PATIENCE)
    with Client(server.address) as client:
        client.infer("sums", None, FEATS, coords_ref=name, timeout=PATIENCE)
    with Client(server.address, geometry_header=False) as client:
        client.infer("sums", COORDS, FEATS, timeout=PATIENCE)
    cli(server, tmp_path, "infer", "--no-geometry-header")
    assert server.headers == [[geometry.header(COORDS)], ["mine"], ["mine"], [], [], []]


def test_the_header_reads_some_rows_of_many():
    coords = np.arange(4000, dtype=np.int32).reshape(1000, 4)
    headers = {geometry.header(coords), geometry.header(coords[::-1]), geometry.header(coords[1:])}
    assert len(headers) == 3
    read = np.arange(64) * 1000 // 64
    for row in (*read, *(read + 1) % 1000):
        other = coords.copy()
        other[row, 1] += 1
        assert (geometry.header(other) != geometry.header(coords)) == (row in read)
