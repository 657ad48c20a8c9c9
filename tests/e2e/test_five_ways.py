# SPDX-License-Identifier: Apache-2.0
"""The examples of clients/README.md, unchanged, against a daemon: what a newcomer copies works.

Each block behind `<!-- way: NAME -->` is extracted, 127.0.0.1:8001 becomes the daemon's address,
and its output must be the normals that the reference client gets.
"""
import asyncio
import base64
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import grpc
import numpy as np
import pytest

from conftest import ROOT
from google.protobuf import descriptor_pool, json_format, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from voxeld import AsyncClient, Client, NotFound
from voxeld_process import PATIENCE, Daemon

README = (ROOT / "clients" / "README.md").read_text()
COORDS = np.array([[0, 1, 2, 3], [0, 1, 2, 4]], np.int32)
NUMBER = r"-?\d+\.?\d*(?:e[-+]?\d+)?"
SERVICE = "inference.GRPCInferenceService"
QUESTIONS = """#include <stdio.h>
#include <voxel.h>
int main(void)
{
    struct voxel_client *client;
    struct voxel_error error;
    bool live = false, ready = false, any = false, first = false, none = false;
    struct voxel_model_name model = {"normals", 0}, version = {"normals", 1}, other = {"none", 0};
    if (voxel_client_open("ADDRESS", NULL, &client, &error)) return 1;
    if (voxel_server_live(client, &live, &error)) return 2;
    if (voxel_server_ready(client, &ready, &error)) return 3;
    if (voxel_model_ready(client, &model, &any, &error)) return 4;
    if (voxel_model_ready(client, &version, &first, &error)) return 5;
    enum voxel_code code = voxel_model_ready(client, &other, &none, &error);
    printf("%d %d %d %d %s", live, ready, any, first, voxel_code_name(code));
    voxel_client_close(client);
    return none;
}
"""


def ways():
    """{name: (language, text)} of the README."""
    found = re.findall(r"^<!-- way: (\S+) -->\n```(\w+)\n(.*?)^```$", README, re.M | re.S)
    assert len(found) == len({name for name, *_ in found})
    return {name: (language, text) for name, language, text in found}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with Daemon(ROOT / "deploy" / "demo" / "repository", tmp_path_factory.mktemp("ways"),
                "--client-shm", "local") as one:
        yield one


@pytest.fixture(scope="module")
def expected(daemon):
    with Client(daemon.grpc) as client:
        return client.infer("normals", COORDS, np.ones((2, 1), np.float32))["normals"].copy()


def text_of(name, daemon):
    text = ways()[name][1]
    assert name == "c-build" or "127.0.0.1:8001" in text
    return text.replace("127.0.0.1:8001", daemon.grpc)


def run(command, folder, **more):
    environment = dict(os.environ, **more)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True,
                          timeout=PATIENCE)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def check(text, expected):
    """The last six numbers that were printed."""
    found = [float(one) for one in re.findall(NUMBER, text)][-6:]
    np.testing.assert_allclose(np.reshape(found, (2, 3)), expected, atol=2e-6)


def test_the_readme_has_every_way():
    assert set(ways()) == {"cli", "c", "c-build", "python", "tritonclient", "grpcurl",
                           "python-shm"}


def test_command_line(daemon, expected, tmp_path):
    path = f"{pathlib.Path(os.environ['VOXEL']).parent}:{os.environ['PATH']}"
    run(["sh", "-e", "-c", text_of("cli", daemon)], tmp_path, PATH=path)
    np.testing.assert_array_equal(np.load(tmp_path / "normals.npy"), expected)


def run_c(program, daemon, tmp_path):
    """With the header, library and .pc file as `cmake --install` places them under a prefix."""
    prefix = tmp_path / "prefix"
    run(["cmake", "--install", str(pathlib.Path(os.environ["VX_BIN"]).parent), "--prefix",
         str(prefix)], tmp_path)
    (tmp_path / "example.c").write_text(program)
    command = text_of("c-build", daemon)
    if os.environ.get("VX_BUILD_KIND") in ("asan", "tsan"):
        kind = {"asan": "address,undefined", "tsan": "thread"}[os.environ["VX_BUILD_KIND"]]
        command = command.replace("cc ", f"cc -fsanitize={kind} ")
    return run(["sh", "-e", "-c", command], tmp_path,
               PKG_CONFIG_PATH=str(prefix / "lib" / "pkgconfig"))


def test_c(daemon, expected, tmp_path):
    check(run_c(text_of("c", daemon), daemon, tmp_path), expected)


def test_c_asks_what_is_ready(daemon, tmp_path):
    out = run_c(QUESTIONS.replace("ADDRESS", daemon.grpc), daemon, tmp_path)
    assert out.split() == ["1", "1", "1", "1", "OK"]


@pytest.mark.parametrize("way", ["python", "tritonclient", "python-shm"])
def test_python(way, daemon, expected, tmp_path):
    (tmp_path / "example.py").write_text(text_of(way, daemon))
    check(run([sys.executable, "example.py"], tmp_path), expected)


def request_of(text):
    return re.search(r"<<'JSON'\n(.*?)^JSON$", text, re.M | re.S)[1]


def answer_check(answer, expected):
    """Checks JSON as grpcurl prints it, with protobuf's JSON names, which the README shows."""
    assert "`rawOutputContents`" in README
    raw = base64.b64decode(answer["rawOutputContents"][0])
    np.testing.assert_array_equal(np.frombuffer(raw, "<f4").reshape(2, 3), expected)


def test_grpcurl(daemon, expected, tmp_path):
    if not shutil.which("grpcurl"):
        pytest.skip("SKIPPED: no grpcurl on this machine; what it does is in the next test")
    out = run(["sh", "-e", "-c", text_of("grpcurl", daemon)], tmp_path)
    answer_check(json.loads(out), expected)


def test_what_grpcurl_does(daemon, expected):
    """Sends the README's JSON with the message types from the server's reflection."""
    text = text_of("grpcurl", daemon)
    address, method = re.search(r"-d @ (\S+) (\S+)", text).groups()
    assert method == f"{SERVICE}/ModelInfer"
    with grpc.insecure_channel(address) as channel:
        pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        described = pool.FindServiceByName(SERVICE).FindMethodByName("ModelInfer")
        request = message_factory.GetMessageClass(described.input_type)()
        json_format.Parse(request_of(text), request)
        call = channel.unary_unary(
            f"/{method}", request_serializer=lambda one: one.SerializeToString(),
            response_deserializer=message_factory.GetMessageClass(
                described.output_type).FromString)
        answer = json_format.MessageToDict(call(request, timeout=PATIENCE))
    answer_check(answer, expected)


def test_shm_of_the_command_line(daemon, expected, tmp_path):
    text = text_of("cli", daemon).replace("--voxel 1", "--voxel 1 --shm")
    path = f"{pathlib.Path(os.environ['VOXEL']).parent}:{os.environ['PATH']}"
    run(["sh", "-e", "-c", text], tmp_path, PATH=path)
    np.testing.assert_array_equal(np.load(tmp_path / "normals.npy"), expected)
    out = run([os.environ["VOXEL"], "bench", "--server", daemon.grpc, "--model", "normals", "-n",
               "200", "-c", "3", "--requests", "30", "--warmup", "2", "--shm", "--json"], tmp_path)
    result = json.loads(out)
    assert result["received_bytes"] < 200 < 200 * 3 * 4   # none of the messages carries a tensor
    assert result["sent_bytes"] < 1000 < 200 * 20


def ours_in_shm():
    return [name for name in os.listdir("/dev/shm") if name.startswith("voxel-")]


def test_python_regions_leave_nothing(daemon, expected):
    feats = np.ones((2, 1), np.float32)
    with Client(daemon.grpc) as client:
        with client.region(4096) as region:   # the first request opens the connection
            assert region.name not in ours_in_shm()
        before = len(os.listdir("/proc/self/fd")), daemon.descriptors()
        for _ in range(200):
            with client.region(100000) as region:
                coords = region.put(COORDS)
                out = region.array((2, 3), np.float32)
                answer = client.infer("normals", coords, feats, outputs_in={"normals": out})
                np.testing.assert_array_equal(out, expected)
                assert np.shares_memory(answer["normals"], out)
        daemon.wait_for("descriptors to be closed", lambda: daemon.descriptors() <= before[1])
        # gRPC may have opened one or two descriptors for itself meanwhile.
        assert len(os.listdir("/proc/self/fd")) <= before[0] + 4
        del answer, coords, out
        assert pathlib.Path("/proc/self/maps").read_text().count("/dev/shm/voxel-") == 0
        assert client._regions == []


def test_python_says_what_cannot_be(daemon):
    feats = np.ones((2, 1), np.float32)
    with Client(daemon.grpc) as client, Client(daemon.grpc) as other:
        with client.region(4096) as region, other.region(4096) as foreign:
            with pytest.raises(ValueError, match="needs 4100 bytes, but only 4096 of 4096"):
                region.array((1025,), np.float32)
            for array, came in ((foreign.array((2, 3), np.float32), "one that lies in none"),
                                (region.array((3, 2), np.float32).T, "one that is not C-cont"),
                                (region.array((0, 3), np.float32), r"an empty one, \[0, 3\]")):
                with pytest.raises(ValueError, match=f"a region of this client, got {came}"):
                    client.infer("normals", COORDS, feats, outputs_in={"normals": array})
            # A region of another connection does not exist here, even by its right name.
            coords = region.put(COORDS)
            other._regions.append(region)
            with pytest.raises(NotFound, match="Unable to find shared memory region"):
                other.infer("normals", coords, feats)
            other._regions.remove(region)
        with pytest.raises(ValueError, match="closed"):
            region.array((1,), np.float32)
    with pytest.raises(ValueError, match="1 byte or more"):
        Client(daemon.grpc).region(0)


def test_python_arrays_have_no_negative_dimensions(daemon):
    with Client(daemon.grpc) as client, client.region(4096) as region:
        first = region.array(16, np.float32)
        for shape in ((-1, 3), (-5000,), -1, (-2, -2), (3, -0x7fffffffffffffff)):
            with pytest.raises(ValueError, match="dimensions of 0 or more"):
                region.array(shape, np.float32)
        for shape in ((1 << 32, 1 << 32), (1 << 62, 4)):  # 2^64 is not 0
            with pytest.raises(ValueError, match="are left"):
                region.array(shape, np.int8)
        with pytest.raises(TypeError):
            region.array((2,), object)
        second = region.array((0, 3), np.float32), region.array((2, 3), np.float32)
        assert region.find(first) == 0 and region.find(second[1]) == 64


def test_asyncio_regions_that_end_oddly(daemon):
    """Never entered, closed twice, closed after the client: nothing is left, no error occurs."""
    def mapped():
        return pathlib.Path("/proc/self/maps").read_text().count("/dev/shm/voxel-")

    async def main():
        made = []  # other tests have regions of their own meanwhile
        async with AsyncClient(daemon.grpc) as client:
            unused = client.region(4096)
            made.append(unused.name)
            assert unused.name not in ours_in_shm()
            with pytest.raises(ValueError, match="not entered"):
                unused.array((1,), np.float32)
            await unused.close()
            async with client.region(4096) as region:
                made.append(region.name)
                with pytest.raises(ValueError, match="already open"):
                    await region.__aenter__()
                await asyncio.gather(region.close(), region.close())
            await region.close()
            assert client._regions == [] and mapped() == 0
        late = AsyncClient(daemon.grpc)
        region = await late.region(4096).__aenter__()
        made.append(region.name)
        assert mapped() == 1
        await late.close()
        await region.close()
        assert mapped() == 0
        await region.close()
        client = Client(daemon.grpc)
        region = client.region(4096)
        made.append(region.name)
        client.close()
        region.close()
        region.close()
        assert mapped() == 0 and not set(made) & set(ours_in_shm())
    asyncio.run(main())


def test_asyncio_regions(daemon, expected):
    async def main():
        async with AsyncClient(daemon.grpc) as client, client.region(65536) as region:
            coords = region.put(COORDS)
            feats = region.put(np.ones((2, 1), np.float32))
            outs = [region.array((2, 3), np.float32) for _ in range(4)]
            await asyncio.gather(*(client.infer("normals", coords, feats,
                                                outputs_in={"normals": out}) for out in outs))
            return [out.copy() for out in outs]
    for out in asyncio.run(main()):
        np.testing.assert_array_equal(out, expected)
