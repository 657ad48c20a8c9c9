# SPDX-License-Identifier: Apache-2.0
"""What a client alone may know, and others could read: names of geometries, of regions, voxels.
With the name of a geometry anybody could have its coordinates, as outputs on other sets."""
import json
import os

import pytest
from tritonclient.grpc import service_pb2

import numpy as np
from access_rig import CODE, GROUPS, Asker, Tokens, page, request_of
from model_files import ConvModel
from voxeld_process import Daemon

REGION = "region-of-a-client"


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    made = Tokens(tmp_path_factory.mktemp("tokens"))
    return made.add("one", GROUPS).add("two", GROUPS).write()


@pytest.fixture(scope="module")
def daemon(tokens, tmp_path_factory):
    repository = tmp_path_factory.mktemp("repository")
    ConvModel(seed=1).write(repository, "conv")
    with Daemon(repository, tmp_path_factory.mktemp("daemon"), "--tokens", str(tokens.path),
                "--client-shm", "local", "--access-log") as one:
        yield one


@pytest.fixture(scope="module")
def asker(daemon, tokens):
    with Asker(daemon.grpc, tokens) as one:
        yield one


def named(voxels, ref, coords=True):
    request = request_of("conv", voxels)
    request.parameters["coords_ref"].string_param = ref
    request.parameters["timing"].bool_param = True
    if not coords:
        del request.inputs[0], request.raw_input_contents[0]
    return request


def name_of(asker, token, voxels):
    code, answer = asker.ask("ModelInfer", named(voxels, ""), token)
    assert code is CODE.OK, answer
    return (answer.parameters["coords_ref"].string_param,
            answer.parameters["geometry_hit"].bool_param)


def pages(daemon):
    return "".join(page(daemon, path)[1] for path in ("/", "/status.json", "/metrics"))


def failures(daemon, code):
    status, text, _ = page(daemon, "/status.json")
    assert status == 200
    return [row for row in json.loads(text)["failures"] if row["code"] == code]


def test_a_name_is_its_tokens_alone(asker):
    """Who learns the name of another's geometry finds nothing by it, not even its size."""
    name, hit = name_of(asker, "one", 70)
    assert not hit and name_of(asker, "one", 70) == (name, True)
    assert asker.ask("ModelInfer", named(70, name, False), "one")[0] is CODE.OK
    for voxels in (70, 69):
        code, sentence = asker.ask("ModelInfer", named(voxels, name, False), "two")
        assert code is CODE.FAILED_PRECONDITION, sentence
        assert sentence == (f"coords_ref '{name[:4]}...' is not known here, or no longer: "
                            "send coords again")
    # Who has the coordinates has the same name, and is not told whether another sent them.
    assert name_of(asker, "two", 70) == (name, False)
    assert asker.ask("ModelInfer", named(70, name, False), "two")[0] is CODE.OK
    assert asker.ask("ModelInfer", named(70, name, False), "one")[0] is CODE.OK


def test_names_stand_nowhere_else(asker, daemon):
    name, _ = name_of(asker, "one", 80)
    assert asker.ask("ModelInfer", named(80, name, False), "one")[0] is CODE.OK
    absent = [os.urandom(16).hex() for _ in range(40)]
    for ref in (*absent, name + "0", name.upper() + "g"):
        code, sentence = asker.ask("ModelInfer", named(80, ref, False), "one")
        assert code in (CODE.FAILED_PRECONDITION, CODE.INVALID_ARGUMENT) and ref not in sentence
    daemon.wait_said(f"coords_ref={absent[-1][:4]}...")
    said = (pages(daemon) + daemon.log()).lower()
    assert not [ref for ref in (name, *absent) if ref[:8] in said]
    row, = failures(daemon, "FAILED_PRECONDITION")
    assert row["count"] >= len(absent) and row["model"] == "conv"


def test_names_of_regions_stand_nowhere(asker, daemon):
    request = request_of("conv", 40)
    request.inputs[1].parameters["shared_memory_region"].string_param = REGION
    request.inputs[1].parameters["shared_memory_byte_size"].int64_param = 640
    del request.raw_input_contents[1]
    code, sentence = asker.ask("ModelInfer", request, "one")
    assert code is CODE.NOT_FOUND and REGION in sentence
    question = service_pb2.SystemSharedMemoryRegisterRequest(name=REGION, key="/absent",
                                                             byte_size=640)
    code, sentence = asker.ask("SystemSharedMemoryRegister", question, "one")
    assert code is not CODE.OK and REGION in sentence
    assert len(failures(daemon, "NOT_FOUND")) >= 1
    assert REGION not in pages(daemon) + daemon.log()


def test_voxels_stand_nowhere(asker, daemon):
    request = request_of("conv", 2)
    request.raw_input_contents[0] = np.array([[0, 7777, 6, 5]] * 2, "<i4").tobytes()
    code, sentence = asker.ask("ModelInfer", request, "one")
    assert code is CODE.INVALID_ARGUMENT and "7777" in sentence
    assert "are the same voxel (...)" in pages(daemon)
    assert "7777" not in pages(daemon) + daemon.log()


def test_models_that_are_not_there_make_one_row(asker, daemon):
    for i in range(40):
        assert asker.infer("one", model="absent-" + "x" * i)[0] is CODE.NOT_FOUND
    assert sum(row["count"] == 40 for row in failures(daemon, "NOT_FOUND")) == 1
