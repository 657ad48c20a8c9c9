# SPDX-License-Identifier: Apache-2.0
"""/status.json lists what failed by reason, wherever a call is refused."""
import json
import re
import time

import grpc
import pytest

import voxeld
from model_files import random_grid
from voxeld_process import PATIENCE

INFER = voxeld.messages.SERVICE + "ModelInfer"


def without_numbers(text):
    return re.sub("[-.0-9]", "", text)


def failures(daemon):
    status, text = daemon.get("/status.json")
    assert status == 200
    return json.loads(text)["failures"]


def pack(model, coords, feats):
    return voxeld.messages.pack_infer(model, coords, feats, {})


def test_failures_are_listed_by_reason(daemon):
    """By gRPC's threads, the loop or a worker; each in the words that its client got, but for the
    voxels in them."""
    coords, feats = random_grid(6, 30)
    calls = [(INFER, b"\xff" * 40, "", 3),
             ("/inference.GRPCInferenceService/Nothing", b"", "", 2),
             ("/inference.GRPCInferenceService/ModelMetadata", b"\x0a\x06absent", "", 4),
             (INFER, pack("absent", coords, feats), "absent", 5),
             (INFER, pack("conv", coords, feats[:, :1]), "conv", 6),
             (INFER, pack("conv", coords[[0, 0]], feats[:2]), "conv", 1)]
    assert failures(daemon) == []
    began_ms, told = time.time() * 1000, []
    with grpc.insecure_channel(daemon.grpc) as channel:
        for method, body, model, times in calls:
            for _ in range(times):
                with pytest.raises(grpc.RpcError) as caught:
                    channel.unary_unary(method)(body, timeout=PATIENCE)
            name = method.rsplit("/", 1)[1].replace("Nothing", "")  # a method that is not known
            text = re.sub(r"\(sample [^)]*\)", "(...)", caught.value.details())
            told.append((caught.value.code().name, name, model, text, times))
    rows = failures(daemon)
    assert [(row["code"], row["method"], row["model"], row["text"], row["count"])
            for row in rows] == told[::-1]
    assert [row["id"] for row in rows] == [6, 5, 4, 3, 2, 1]
    for row in rows:
        assert began_ms - 1000 < row["first_ms"] <= row["last_ms"] < time.time() * 1000 + 1000


def test_numbers_make_no_other_reason(daemon):
    """A client that is wrong in a new way each time has one row, with its last sentence."""
    coords, feats = random_grid(7, 90)
    before = len(failures(daemon))
    with grpc.insecure_channel(daemon.grpc) as channel:
        for rows in range(80, 90):
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(INFER)(pack("conv", coords[:rows], feats[:rows, :2]),
                                           timeout=PATIENCE)
    said = failures(daemon)
    assert said[0]["text"] == caught.value.details() and "89" in said[0]["text"]
    same = [row for row in said if without_numbers(row["text"]) == without_numbers(said[0]["text"])]
    assert len(same) == 1 and same[0]["count"] >= 10 and len(said) <= before + 1
