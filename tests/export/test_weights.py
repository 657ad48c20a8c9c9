# SPDX-License-Identifier: Apache-2.0
"""Weights that are no numbers are refused by name, and what their rounding loses is said."""

import warnings

import numpy as np
import pytest
import spconv.pytorch as sp
import torch
from conftest import cloud, trained
from safetensors.numpy import load_file, save_file
from torch import nn
from voxeld_export import ExportError, from_module, from_onnx
from voxeld_export.cli import main
from voxeld_export.families import Random, family
from voxeld_export.weights import round_weights, write_weights

SMALL = ["--set", "planes=8,8,8,8,8,8,8,8"]
SMALL_OPTIONS = {"planes": (8,) * 8, "stem": 8}
NAME = "block3.1.conv1.kernel"


def run(capsys, *words):
    """(exit code, stdout, stderr)."""
    code = main([str(word) for word in words])
    said = capsys.readouterr()
    return code, said.out, said.err


def checkpoint(path, **changes):
    """A file of a small MinkUNet18's tensors, some of which a function changes."""
    network, _ = family("minkunet18").network(Random(7), naming="minkowski", **SMALL_OPTIONS)
    tensors = {name: np.array(array) for name, array in network.tensors.items()}
    for name, change in changes.items():
        tensors[name] = change(tensors[name])
    save_file({f"net.{name}": array for name, array in tensors.items()}, path)
    return ["checkpoint", path, "--family", "minkunet18", *SMALL]


def with_value(value, *places):
    def change(array):
        array = array.copy()
        array.flat[list(places)] = value
        return array

    return change


@pytest.mark.parametrize("more", [[], ["--no-check"], ["--datatype", "FP16"]])
def test_a_checkpoint_with_nan(capsys, tmp_path, folder, more):
    """The tensors, how many numbers, and where the first is; no advice about other examples."""
    path = tmp_path / "a.safetensors"
    changes = {NAME: with_value(np.nan, 9, 700), "bn0.bn.running_var": with_value(np.inf, 3)}
    code, out, err = run(capsys, *checkpoint(path, **changes), "-o", folder, *more)
    assert (code, out) == (1, "")
    one = f"net.{NAME} has 2 of 1728 numbers that are NaN or infinite, the first nan at [0, 1, 1]"
    other = "net.bn0.bn.running_var has 1 of 8 numbers that are NaN or infinite, the first inf at"
    assert f"{path}: net.b" in err and one in err and f"{other} [3]" in err, err
    assert "expected finite numbers" in err and "warning" not in err
    assert not folder.exists() and not list(tmp_path.glob("**/.*"))


def test_what_no_layer_reads_may_have_nan(capsys, tmp_path, folder):
    path = tmp_path / "a.safetensors"
    words = checkpoint(path)
    tensors = load_file(path)
    save_file({**tensors, "net.loss.weight": np.full(3, np.nan, np.float32)}, path)
    code, _, err = run(capsys, *words, "-o", folder, "--no-check")
    assert code == 0 and "not part of the family: net (1 tensors)" in err


def small_net():
    net = sp.SparseSequential(sp.SubMConv3d(4, 8, 3, bias=False), nn.Linear(8, 8))
    coords = cloud("scatter", (12, 10, 14))
    x = sp.SparseConvTensor(torch.randn(len(coords), 4), coords, [12, 10, 14], 2)
    return trained(net), x


@pytest.mark.parametrize("check", [True, False])
def test_a_module_with_nan(folder, check):
    net, x = small_net()
    net[1].weight.data[2, 3] = float("nan")
    said = r"1.weight has 1 of 64 numbers that are NaN or infinite, the first nan at \[2, 3\]; exp"
    with pytest.raises(ExportError, match=said):
        from_module(net, x, folder, check=check)
    assert not folder.exists()


def test_features_with_nan(folder):
    """Weights are in order, so that it is not they that are named."""
    net, x = small_net()
    x.features[4, 1] = float("nan")
    with pytest.raises(ExportError, match=r"the example: feats have 1 of .* nan at \[4, 1\]"):
        from_module(net, x, folder)


def test_an_onnx_file_with_nan(tmp_path, folder):
    from libspconv_file import File, subm

    at = cloud("sheet", (9, 12, 10))
    x = sp.SparseConvTensor(torch.randn(len(at), 4).half().float(), at, [9, 12, 10], 2)
    conv = subm(4, 8, "a")
    conv.weight.data[0, 0, 0, 0, 1] = float("inf")
    file = File(x)
    path = file.save(tmp_path / "scn.onnx", file.conv(conv, x, "ReLU"))
    with pytest.raises(ExportError, match=r"scn.onnx: .* has 1 of 864 numbers .* the first inf"):
        from_onnx(path, folder, check=False)


# --- what is lost ---


def scaled(factor):
    return lambda array: array * np.float32(factor)


def test_underflow_is_said(capsys, tmp_path, folder):
    """A first layer of large features has small weights."""
    words = checkpoint(tmp_path / "a.safetensors", **{"conv0p1s1.kernel": scaled(1e-6)})
    code, _, err = run(capsys, *words, "-o", folder, "--datatype", "FP16")
    lines = [line for line in err.splitlines() if "warning: " in line]
    assert code == 0 and len(lines) == 1, err
    assert "warning: conv0p1s1.kernel in FP16: " in lines[0]
    assert "of its 4000 elements become 0, and the NMSE of the rounding is 0.0" in lines[0]
    assert "expected at most 0.0001: export as BF16 or FP32" in lines[0]
    for datatype in ("BF16", "FP32"):
        code, _, err = run(capsys, *words, "-o", folder, "--datatype", datatype)
        assert code == 0 and "warning" not in err
    words = checkpoint(tmp_path / "a.safetensors", **{"conv0p1s1.kernel": scaled(1e-9)})
    code, _, err = run(capsys, *words, "-o", folder, "--datatype", "FP16")
    assert code == 1 and "conv0p1s1.kernel becomes 0 in all its 4000 elements in FP16" in err


def test_underflow_of_a_module_is_said_once(folder):
    """The module runs twice with rounded weights."""
    net, x = small_net()
    net[0].weight.data *= 1e-6
    kept = net[0].weight.data.clone()
    with pytest.warns(UserWarning) as said:
        from_module(net, x, folder, datatype="FP16")
    texts = [str(one.message) for one in said if "NMSE" in str(one.message)]
    assert len(texts) == 1 and texts[0].startswith("0.weight in FP16: ")
    assert torch.equal(net[0].weight.data, kept)
    net[0].weight.data *= 1e-6
    with pytest.raises(ExportError, match="0.weight becomes 0 in all its 864 elements in FP16"):
        from_module(net, x, folder, datatype="FP16")


def test_the_share_and_the_nmse():
    array = np.array([1e-9, 1e-9, 1e-9, 6e-8], np.float32)
    said = "w in FP16: 75% of its 4 elements become 0, and the NMSE of the rounding is 0.00"
    with pytest.warns(UserWarning, match=said) as warned:
        round_weights("w", array, "FP16")
    assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for good in (np.zeros(3), np.array([0.0, 1e-9, 1.0]), np.array([6.1e-5, 1.0, 6e4])):
            for datatype in ("FP16", "BF16", "FP32"):
                round_weights("w", good, datatype)
        rng = np.random.default_rng(1)
        for datatype in ("FP16", "BF16", "FP32"):
            round_weights("w", rng.standard_normal(100000), datatype)


def test_what_float32_cannot_hold(tmp_path):
    """A checkpoint of float64 is rounded, too."""
    path = str(tmp_path / "weights.safetensors")
    for array, said in (
        (np.array([1.0, 1e39]), "w has 1e\\+39, which is beyond FP32: scale the weights"),
        (np.array([1e-60, -1e-50]), "w becomes 0 in all its 2 elements in FP32, its largest is 1e"),
        (np.array([1.0, np.nan]), "w has 1 of 2 numbers that are NaN or infinite, the first nan"),
    ):
        with pytest.raises(ExportError, match=said):
            write_weights(path, {"w": array}, {})
    with pytest.raises(ExportError, match="beyond BF16: export as FP32"):
        round_weights("w", np.array([3.4e38], np.float32), "BF16")


class Computed(nn.Module):
    """A convolution, and a linear layer whose weight is a product of parameters."""

    def __init__(self):
        super().__init__()
        self.conv = sp.SubMConv3d(4, 8, 3, bias=False)
        self.matrix = nn.Parameter(torch.randn(8, 8) / 4)

    def forward(self, x):
        y = self.conv(x)
        turned = y.features @ self.matrix  # the parameter's own numbers, in another order
        return nn.functional.linear(turned, self.matrix.t() @ self.matrix)


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_a_computed_weight(folder, datatype):
    """The source does not round it, so that only FP32 can be proven."""
    coords = cloud("scatter", [9, 8, 10])
    x = sp.SparseConvTensor(torch.randn(len(coords), 4), coords, [9, 8, 10], 2)
    net = trained(Computed())
    said = f"the weight of the layer linear_2 is computed of parameters, and {datatype} would round"
    with pytest.raises(ExportError, match=said):
        from_module(net, x, folder, datatype=datatype)
    assert not folder.exists()
    from_module(net, x, folder, datatype=datatype, bound=0.05)
    from_module(net, x, folder, datatype="FP32", replace=True)
