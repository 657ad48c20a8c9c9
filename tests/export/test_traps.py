# SPDX-License-Identifier: Apache-2.0
"""What would be a wrong answer that looks right, a lost folder, or another library's traceback."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import spconv.pytorch as sp
import torch
from conftest import ROOT, cloud, trained
from cumm import tensorview as tv
from torch import nn
from voxeld_export import CheckFailed, ExportError, check, from_module
from voxeld_export.cli import main
from voxeld_export.libraries.spconv import Spconv
from voxeld_export.network import Network
from voxeld_export.trace import Trace
from voxeld_export.weights import write_weights

SHAPE = [12, 10, 14]
SMALL = ["--set", "planes=8,8,8,8,8,8,8,8", "--set", "stem=8"]


def example(count=None):
    coords = cloud("scatter", SHAPE)[:count]
    return sp.SparseConvTensor(torch.randn(len(coords), 4), coords, SHAPE, 2)


def alone():
    """Voxels without neighbours: a proof on them does not see where a kernel's offsets lie."""
    coords = torch.cartesian_prod(*(torch.arange(1, size - 1, 4) for size in SHAPE)).int()
    coords = nn.functional.pad(coords, (1, 0))
    return sp.SparseConvTensor(torch.randn(len(coords), 4), coords, SHAPE, 1)


class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.conv = sp.SubMConv3d(4, 8, 3, bias=False)
        self.second = sp.SubMConv3d(8, 8, 3, bias=False)
        self.down = sp.SparseConv3d(8, 8, 3, 2, padding=1, bias=False)
        self.linear = nn.Linear(8, 8)
        self.register_buffer("scale", torch.ones(8))
        self.function = function

    def forward(self, x):
        return self.function(self, self.conv(x))


def on(x, coords, shape):
    """The same features on other coordinates."""
    return sp.SparseConvTensor(x.features, coords.contiguous(), shape, x.batch_size)


def filled(net, x):
    net.scale.copy_(x.indices.float().mean(0).repeat(2))
    return x.features * net.scale


def assigned(net, x):
    net.scale[:] = x.indices.float().mean(0).repeat(2)
    return x.features * net.scale


def doubled(net, x):
    """Of a sample that the example lacks; torch 1.13 does not tell of such an assignment."""
    features, chosen = x.features.clone(), x.indices[:, 0] > 4
    features[chosen] = features[chosen] * 2
    return features


def rescaled(net, x):
    net.second.weight.mul_(x.features.mean())
    return net.second(x).features


def smaller(net, x):
    x = net.down(x)
    return net.down(on(x, x.indices, [size - 1 for size in x.spatial_shape]))


REFUSED = {
    "a number of coordinates": (
        lambda n, x: x.features * (x.indices[:, 0] == 0).float().mean(),
        "torch's mul in the network's own forward: it reads a number that comes from other",
    ),
    "a random number": (
        lambda n, x: x.features + torch.rand(()),
        "torch's add in the network's own forward: it reads a number that comes from other",
    ),
    "random numbers from a parameter": (
        lambda n, x: x.features + torch.normal(n.linear.bias, n.scale),
        "which is not a parameter or buffer with 8 numbers",
    ),
    "a buffer filled with coordinates": (
        filled,
        "needs scale, which torch's copy_ in the network's own forward changes",
    ),
    "a buffer assigned to": (
        assigned,
        "needs scale, which was changed in place, in the network's own forward",
    ),
    "features assigned to": (doubled, "in the network's own forward"),
    "turned coordinates": (
        lambda n, x: n.second(on(x, x.indices[:, [0, 3, 2, 1]], SHAPE[::-1])).features,
        "SubMConv3d in module second, which gets other coordinates than those of conv",
    ),
    "another shape": (
        smaller,
        r"in module down, which gets spatial_shape \[5, 4, 6\]; expected \[6, 5, 7\]",
    ),
    "a weight that follows the features": (
        rescaled,
        "needs a parameter that follows torch's mean in the network's own forward",
    ),
    "out=": (
        lambda n, x: torch.add(x.features, x.features, out=torch.empty_like(x.features)),
        "it is called in a way that no layer does: got an unexpected keyword argument 'out'",
    ),
    "a column": (
        lambda n, x: nn.functional.layer_norm(x.features[:, 0], (len(x.features),)),
        "torch's layer_norm in the network's own forward: its tensor has shape",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(folder, name):
    function, said = REFUSED[name]
    with pytest.raises(ExportError, match=said):
        from_module(trained(Net(function)), alone(), folder)
    assert not folder.exists()


def halves(one, other):
    """They share memory; what is done to one changes nothing of the other."""
    return torch.relu_(one) * other.sigmoid_() + one


TAKEN = {
    "input=": lambda n, x: torch.add(input=x.features, other=x.features),
    "a linear of input=": lambda n, x: nn.functional.linear(
        input=x.features, weight=n.linear.weight, bias=n.linear.bias
    ),
    "tensors=": lambda n, x: torch.cat(tensors=(x.features, x.features), dim=-1),
    "a number of the network's own": lambda n, x: x.features * torch.tensor(0.5) + n.scale.sum(),
    "halves that are changed": lambda n, x: halves(*x.features.chunk(2, 1)),
    "a buffer that parameters change": lambda n, x: x.features * n.scale.mul_(1),
}


@pytest.mark.parametrize("name", TAKEN)
def test_taken(folder, name):
    from_module(trained(Net(TAKEN[name])), example(), folder)


class Clamped(sp.SubMConv3d):
    """The example's features are too small to show what it adds."""

    def forward(self, x):
        x = super().forward(x)
        return x.replace_feature(x.features.clamp(-1000, 1000))


class Named(sp.SubMConv3d):
    def __init__(self, channels):
        super().__init__(4, channels, 3, bias=False)


def test_derived_classes(folder):
    net = trained(sp.SparseSequential(Clamped(4, 8, 3, bias=False)))
    with pytest.raises(ExportError, match="Clamped in module 0, whose forward is not spconv's"):
        from_module(net, example(), folder)
    from_module(trained(sp.SparseSequential(Named(8))), example(), folder)


def test_the_server_refuses_the_example(folder):
    x = example()
    x.indices[1] = x.indices[0]
    with pytest.raises(ExportError, match="refuses the example: .*are the same voxel"):
        from_module(trained(Net(lambda n, x: x.features)), x, folder)


@pytest.mark.parametrize("name", ["item", "__float__", "tolist", "numpy"])
def test_a_number_of_the_example(folder, name):
    """Python's numbers leave no trace; a second pass with other features has others."""

    def scaled(_net, x):
        largest = getattr(x.features.max(), name)()
        return x.features / float(largest)

    said = f"torch's {name} in the network's own forward reads a number of the example"
    with pytest.warns(UserWarning, match=said), pytest.raises(ExportError) as error:
        from_module(trained(Net(scaled)), example(), folder)
    assert "for other features: Python computes it of the example" in str(error.value)


def test_an_output_of_zeros(folder):
    net = trained(Net(lambda n, x: torch.relu(x.features - 1000)))
    with pytest.warns(UserWarning, match="the output out is 0 in all its"):
        from_module(net, example(), folder)


def test_only_a_model_is_replaced(tmp_path, capsys):
    """`-o repository` is one word short, and would be the end of all models."""
    other = tmp_path / "repository" / "other"
    other.mkdir(parents=True)
    (other / "network.json").write_text("{}")
    (tmp_path / "file").write_text("precious")
    words = ["family", "minkunet18", *SMALL, "--no-check", "-o"]
    for where, said in (("repository", "has no network.json"), ("file", "is a file")):
        assert main([*words, str(tmp_path / where)]) == 1
        assert said in capsys.readouterr().err
    assert main([*words, str(tmp_path / "file" / "net")]) == 1
    assert "cannot be made" in capsys.readouterr().err
    assert (other / "network.json").read_text() == "{}"
    assert (tmp_path / "file").read_text() == "precious"
    # A model's folder is replaced, through a link, too; nothing else lies there afterwards.
    (tmp_path / "link").symlink_to(other)
    for where in (tmp_path / "link", other):
        assert main([*words, str(where)]) == 0
    assert "layers" in (other / "network.json").read_text()
    assert [path.name for path in (tmp_path / "repository").iterdir()] == ["other"]


def test_files_that_cannot_be(tmp_path, capsys):
    with pytest.raises(ExportError, match="weights.safetensors cannot be written"):
        write_weights(str(tmp_path / "no" / "weights.safetensors"), {"a": np.ones(3, "f4")}, {})
    path = tmp_path / "junk.safetensors"
    path.write_text("junk")
    assert main(["checkpoint", str(path), "--family", "minkunet18", "-o", str(tmp_path / "x")]) == 1
    assert "junk.safetensors is not a .safetensors" in capsys.readouterr().err


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_nothing(tmp_path, number, code):
    """Neither files nor the proof's server, and no traceback."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    program = tmp_path / "voxeld"  # its proof never ends
    script = f'[ "$1" = check ] && exit\necho $$ > {tmp_path}/pid\nexec sleep 600\n'
    program.write_text("#!/bin/sh\n" + script)
    program.chmod(0o755)
    words = ["family", "minkunet18", *SMALL, "-o", str(tmp_path / "repository" / "net")]
    process = subprocess.Popen(
        [sys.executable, "-m", "voxeld_export", *words, "--voxeld", str(program)],
        env={
            **os.environ,
            "TMPDIR": str(scratch),
            "PYTHONPATH": f"{ROOT / 'clients' / 'export'}:{ROOT / 'clients' / 'python'}",
        },
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 600
    pid = tmp_path / "pid"
    while not (pid.exists() and pid.read_text().strip()) and time.monotonic() < until:
        time.sleep(0.02)  # sleep: another process makes a file
    process.send_signal(number)
    said = process.communicate(timeout=600)[1]
    assert process.returncode == code and "Traceback" not in said
    # Killed, but somebody else's child by now: init may not have taken it yet.
    until = time.monotonic() + 600
    while os.path.exists(f"/proc/{int(pid.read_text())}") and time.monotonic() < until:
        time.sleep(0.02)  # sleep: another process ends
    assert not os.path.exists(f"/proc/{int(pid.read_text())}")
    assert not list(scratch.iterdir()) and not list((tmp_path / "repository").iterdir())


def test_a_signal_while_the_server_starts(tmp_path, monkeypatch):
    """It is born, and Popen has not returned: nobody else would end it."""
    program = tmp_path / "voxeld"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    born, popen = [], subprocess.Popen

    def interrupted(*words, **how):
        born.append(popen(*words, **how))
        os.kill(os.getpid(), signal.SIGUSR1)
        return born[0]

    def ended(_number, _frame):
        raise SystemExit(7)

    monkeypatch.setattr(check.subprocess, "Popen", interrupted)
    before = signal.signal(signal.SIGUSR1, ended)
    try:
        with pytest.raises(SystemExit), check._server(str(tmp_path), str(program)):
            pass
    finally:
        signal.signal(signal.SIGUSR1, before)
    left = born[0].poll() is None
    born[0].kill()
    assert not left


def stored(net, x):
    """Neither a function nor a version of torch's tells of this."""
    net.scale.data.copy_(x.features.mean(0))
    return x.features * net.scale


def branched(net, x):
    return x.features * 2 if x.features[0, 0].item() > 0 else net.linear(x.features)


def test_a_tensor_of_the_example_shows_with_other_features(folder):
    x = example()
    before = x.features.clone()
    with pytest.raises(CheckFailed, match="for other features than the example's") as error:
        from_module(trained(Net(stored)), x, folder)
    assert error.value.other and error.value.report.differences[0].relative() > 0.01
    assert torch.equal(x.features, before)  # the caller's tensor is as it was
    assert list(folder.parent.iterdir()) == []


@pytest.mark.filterwarnings("ignore:torch's item")
def test_a_path_that_other_features_do_not_take(folder):
    net, x = trained(Net(branched)), example()
    x.features[:, :] = x.features.sort(0)[0]  # its first row is the lowest; shuffled, another is
    net.conv.weight.data.abs_()
    with pytest.raises(ExportError, match="takes another path for other features"):
        from_module(net, x, folder)
    assert not folder.exists()


def test_an_example_of_one_voxel(folder):
    with pytest.raises(ExportError, match="the example has 1 voxels; expected 2 or more"):
        from_module(trained(Net(lambda n, x: x)), example(1), folder)


def modes_of(net):
    return {name: module.training for name, module in net.named_modules()}


def test_a_bias_in_eval_mode_on_a_cpu(folder):
    """spconv's default is a bias, which it refuses there; the export runs it in training mode."""
    net = Net(lambda n, x: n.up(n.point(n.down(n.second(x)))))
    net.second = sp.SubMConv3d(8, 8, 3)
    net.down = sp.SparseConv3d(8, 8, 3, 2, padding=1, indice_key="down")
    net.point = sp.SubMConv3d(8, 8, 1)
    net.up = sp.SparseInverseConv3d(8, 8, 3, indice_key="down")
    net.never = sp.SparseConvTranspose3d(8, 8, 3, 2)  # no layer does it, and nobody calls it
    trained(net)
    net.down.train()
    modes, own = modes_of(net), {name: set(vars(module)) for name, module in net.named_modules()}
    from_module(net, example(), folder)
    assert modes_of(net) == modes
    assert {name: set(vars(module)) for name, module in net.named_modules()} == own
    with pytest.raises(AssertionError, match="cpu don't support"):  # spconv is as it was
        net.second(sp.SparseConvTensor(torch.ones(2, 8), example(2).indices, SHAPE, 2))


class Doubled(sp.SubMConv3d):
    """The user's own, whose mode means something to it."""

    def forward(self, x):
        x = super().forward(x)
        return x.replace_feature(x.features * (1000 if self.training else 2))


def test_what_is_around_a_bias_keeps_its_mode(folder):
    net, x, seen = Net(lambda n, x: n.doubled(x)), example(), []
    net.doubled = Doubled(8, 8, 3)
    trained(net)
    with pytest.raises(ExportError, match="Doubled in module doubled, whose forward is not spconv"):
        from_module(net, x, folder)
    net.function = lambda n, x: [seen.append(modes_of(n)), n.doubled(x)][1]
    with Trace(net, Spconv(), Network(4)), torch.no_grad():
        followed = net(x).features
    assert not any(seen[0].values())
    plain = sp.SubMConv3d(8, 8, 3).train()
    plain.load_state_dict(net.doubled.state_dict())
    assert torch.equal(followed, 2 * plain(net.conv(x)).features)


def test_a_fused_activation_on_a_cpu(folder):
    net = trained(Net(lambda n, x: n.second(x)))
    net.second.act_type = tv.gemm.Activation.ReLU
    said = "SubMConv3d in module second has the activation ReLU fused into it, which spconv refuses"
    with pytest.raises(ExportError, match=said):
        from_module(net, example(), folder)


def test_all_that_is_in_training_mode_is_named(folder):
    net = trained(Net(lambda n, x: x))
    net.norms = nn.ModuleList([nn.BatchNorm1d(8) for _ in range(10)])
    said = "batch: norms.0, norms.1, .*, norms.7 and 2 more; call eval"
    with pytest.raises(ExportError, match=said):
        from_module(net, example(), folder)
