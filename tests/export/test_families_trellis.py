# SPDX-License-Identifier: Apache-2.0
"""TRELLIS by name: decoders, encoders, up-blocks, served and compared with references in torch."""

import json

import numpy as np
import pytest
import torch
from conftest import cloud
from reference import trellis as published
from reference.sparse import Sites, Sparse, randomise, rounded
from safetensors.torch import save_file
from voxeld_export import ExportError
from voxeld_export.check import check_folder
from voxeld_export.cli import main
from voxeld_export.example import Example
from voxeld_export.families import Checkpoint, Random, family
from voxeld_export.families.clouds import shell

KINDS = ["scatter", "shell", "blob"]
DECODER = {"channels_in": 6, "model_channels": (64, 48, 24, 12), "num_blocks": (1, 2, 0, 1)}
ENCODER = {"channels_in": 6, "model_channels": (16, 32, 32, 128), "num_blocks": (0, 1, 2, 1)}
UPBLOCKS = {"channels_in": 48, "model_channels": (24, 16), "out_channels": 13}
MARGIN = 1e-4  # the least logit that decides; float32 is some 100 times more exact


def decoder(channels_out=7, predicts=True):
    return published.Decoder(*DECODER.values(), channels_out, predicts)


def request(kind, channels, shape=(6, 5, 7), samples=2, seed=3):
    """A Sparse in float64, with negative coordinates."""
    if kind == "shell":
        coords = shell(np.random.default_rng(seed), min(shape), samples)
    else:
        coords = cloud(kind, shape, samples, seed).numpy()
    coords[:, 1:] -= (3, 1, 5)
    torch.manual_seed(seed)
    return Sparse(Sites(coords), torch.randn(len(coords), channels).double())


def assert_margin(logits):
    """No logit is so near 0 that a sum in another order has another sign."""
    assert logits and all(level.abs().min() > MARGIN for level in logits)


def settled(net, x):
    """A decoder whose biases leave a quarter to three quarters of the children, no logit near 0."""
    with torch.no_grad():
        net.double()(x, settle=True)
        _, logits, levels = net(x)
    assert_margin(logits)
    for fine, coarse in zip(levels[1:], levels):
        assert 1.5 < len(fine.sites) / len(coarse.sites) < 6.5
    return net.float()


def save(path, **nets):
    """A file of safetensors for each network; returns the argument of Checkpoint.open."""
    for name, net in nets.items():
        save_file(net.state_dict(), f"{path}/{name}.safetensors")
    files = [f"{name}={path}/{name}.safetensors" for name in nets]
    return files[0].partition("=")[2] if len(files) == 1 else ",".join(files)


def loaded(name, path, **given):
    """(network, top level, options that the checkpoint says) of a checkpoint."""
    chosen, checkpoint = family(name), Checkpoint.open(path)
    options = chosen.read(checkpoint)
    network, unused = chosen.network(checkpoint, **{**options, **given})
    assert unused == []
    return network, chosen.more({**options, **given}), options


def compare(folder, made, x, outputs, datatype=None):
    """Serves a network and compares it with {output: float64 Sparse}."""
    network, top, _ = made
    network.write(str(folder), datatype, **top)
    expected = {
        name: (y.feats.numpy().astype(np.float32), y.sites.coords) for name, y in outputs.items()
    }
    return check_folder(str(folder), Example(x.sites.coords, x.feats.float().numpy(), expected))


_SMALL = ("from_latent.", "input_layer.", "conv.bias", "conv1.", "conv2.", "mlp.2.")


def quiet(net):
    """Features of about 0.01, so that the eps of every norm counts."""
    with torch.no_grad():
        for name, tensor in net.state_dict().items():
            if any(part in name for part in _SMALL) or "out_layers.0" in name:
                tensor *= 0.01
            elif name.endswith("to_subdiv.weight"):
                tensor *= 100
    return net


def shape_of(net, x):
    """{output: Sparse} of a shape decoder, and its logits."""
    with torch.no_grad():
        h, logits, _ = net.double()(x)
        return {n: h.like(y) for n, y in published.flexi_dual_grid(h.feats).items()}, logits


# --- TRELLIS.2's decoders


@pytest.mark.parametrize("kind", KINDS)
def test_decoder(tmp_path, folder, kind):
    x = request(kind, 6)
    net = settled(randomise(decoder()), x)
    made = loaded("trellis2_decoder", save(tmp_path, shape=net))
    assert made[2] == {**DECODER, "out_channels": 7, "naming": "trellis2"}
    compare(folder, made, x, shape_of(net, x)[0])


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_decoder_datatypes(tmp_path, folder, datatype):
    """Rounded weights subdivide otherwise: the biases settle behind the rounding."""
    x = request("shell", 6)
    net = settled(rounded(randomise(decoder()), datatype), x)
    made = loaded("trellis2_decoder", save(tmp_path, shape=net))
    compare(folder, made, x, shape_of(net, x)[0], datatype)


def test_small_features(tmp_path, folder):
    x = request("blob", 6)
    net = settled(quiet(randomise(decoder())), x)
    made = loaded("trellis2_decoder", save(tmp_path, shape=net))
    compare(folder, made, x, shape_of(net, x)[0])


def test_published_mixture(tmp_path, folder):
    """As published: blocks in FP16 but for norms, the first and the last layer in FP32."""
    x = request("blob", 6)
    net = settled(randomise(decoder()), x)
    tensors = {
        name: tensor.half() if name.startswith("blocks.") and ".norm" not in name else tensor
        for name, tensor in net.state_dict().items()
    }
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float16, torch.float32}
    net.load_state_dict(tensors)
    outputs, logits = shape_of(net, x)
    assert_margin(logits)
    save_file(tensors, tmp_path / "shape.safetensors")
    made = loaded("trellis2_decoder", str(tmp_path / "shape.safetensors"))
    compare(folder, made, x, outputs)


def test_no_children(tmp_path, folder):
    """Where all logits are below 0 no voxel is left, which is an answer."""
    x = request("scatter", 6)
    net = randomise(decoder())
    net.blocks[1][2].to_subdiv.bias.data.fill_(-1000)
    outputs, _ = shape_of(net, x)
    assert outputs["vertices"].feats.shape == (0, 3)
    made = loaded("trellis2_decoder", save(tmp_path, shape=net.float()))
    compare(folder, made, x, outputs)


def test_other_channels(tmp_path, folder):
    """A SparseUnetVaeDecoder that is no FlexiDualGridVaeDecoder answers what its layer says."""
    x = request("scatter", 6)
    net = settled(randomise(decoder(5)), x)
    made = loaded("trellis2_decoder", save(tmp_path, shape=net))
    with torch.no_grad():
        compare(folder, made, x, {"decoded": net.double()(x)[0]})


def test_margin(tmp_path, folder):
    x = request("shell", 6)
    net = settled(randomise(decoder()), x)
    made = loaded("trellis2_decoder", save(tmp_path, shape=net), voxel_margin=0.25)
    with torch.no_grad():
        h, _, _ = net.double()(x)
    outputs = {n: h.like(y) for n, y in published.flexi_dual_grid(h.feats, 0.25).items()}
    compare(folder, made, x, outputs)


@pytest.mark.parametrize(
    "kind, datatype", [*((kind, None) for kind in KINDS), ("shell", "FP16"), ("blob", "BF16")]
)
def test_texture_on_the_shapes_geometry(tmp_path, folder, kind, datatype):
    x = request(kind, 12)
    first, second = x.like(x.feats[:, :6]), x.like(x.feats[:, 6:])
    shape = settled(rounded(randomise(decoder()), datatype or "FP32"), first)
    texture = rounded(randomise(decoder(6, predicts=False), seed=2), datatype or "FP32")
    made = loaded("trellis2_texture_decoder", save(tmp_path, shape=shape, texture=texture))
    assert made[2] == {**DECODER, "channels_in": 12, "out_channels": 6, "naming": "trellis2"}
    outputs, logits = shape_of(shape, first)
    with torch.no_grad():
        outputs["texture"], _, _ = texture.double()(second, logits)
    compare(folder, made, x, outputs, datatype)
    document = json.loads((folder / "network.json").read_text())
    occupied = {layer["occupancy"] for layer in document["layers"] if "occupancy" in layer}
    assert occupied == {f"shape.blocks.{i}.{n}.to_subdiv" for i, n in enumerate((1, 2, 0))}


# --- TRELLIS.2's encoders


def encoded(net, x, texture):
    with torch.no_grad():
        return net.double()(x if texture else x.like(x.feats - 0.5))


@pytest.mark.parametrize("texture", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_encoder(tmp_path, folder, kind, texture):
    x = request(kind, 6, (21, 18, 22))
    net = randomise(published.Encoder(*ENCODER.values(), 5))
    made = loaded("trellis2_encoder", save(tmp_path, encoder=net), texture=texture)
    assert made[2] == {**ENCODER, "out_channels": 5, "naming": "trellis2"}
    mean, logvar = encoded(net, x, texture)
    compare(folder, made, x, {"mean": mean, "logvar": logvar})


def test_small_features_of_an_encoder(tmp_path, folder):
    x = request("blob", 6, (21, 18, 22))
    net = quiet(randomise(published.Encoder(*ENCODER.values(), 5)))
    made = loaded("trellis2_encoder", save(tmp_path, encoder=net), texture=False)
    mean, logvar = encoded(net, x, False)
    compare(folder, made, x, {"mean": mean, "logvar": logvar})


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_encoder_datatypes(tmp_path, folder, datatype):
    x = request("shell", 6, (21, 18, 22))
    net = randomise(published.Encoder(*ENCODER.values(), 5))
    made = loaded("trellis2_encoder", save(tmp_path, encoder=net), texture=False)
    mean, logvar = encoded(rounded(net, datatype), x, False)
    compare(folder, made, x, {"mean": mean, "logvar": logvar}, datatype)


def test_encoder_then_decoder(tmp_path, folder):
    """The served encoder's mean, decoded by the served decoder, is what the references make."""
    x = request("scatter", 6, (24, 20, 22))
    encoder = randomise(published.Encoder(*ENCODER.values(), 6))
    made = loaded("trellis2_encoder", save(tmp_path, encoder=encoder), texture=False)
    mean, logvar = encoded(encoder, x, False)
    compare(folder, made, x, {"mean": mean, "logvar": logvar})
    net = settled(randomise(decoder(), seed=2), mean)
    made = loaded("trellis2_decoder", save(tmp_path, shape=net))
    compare(folder, made, mean, shape_of(net, mean)[0])


# --- TRELLIS v1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("library", ["spconv", "torchsparse"])
def test_upblocks(tmp_path, folder, kind, library):
    x = request(kind, 48)
    net = randomise(published.UpBlocks(library, *UPBLOCKS.values(), 8))
    made = loaded("trellis1_mesh_upblocks", save(tmp_path, mesh=net), groups=8)
    assert made[2] == {**UPBLOCKS, "naming": library}
    with torch.no_grad():
        compare(folder, made, x, {"cubes": net.double()(x)})


def test_small_features_of_upblocks(tmp_path, folder):
    x = request("shell", 48)
    x = x.like(x.feats * 0.01)
    net = quiet(randomise(published.UpBlocks("spconv", *UPBLOCKS.values(), 8)))
    made = loaded("trellis1_mesh_upblocks", save(tmp_path, mesh=net), groups=8)
    with torch.no_grad():
        compare(folder, made, x, {"cubes": net.double()(x)})


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_upblocks_datatypes(tmp_path, folder, datatype):
    x = request("shell", 48)
    net = rounded(randomise(published.UpBlocks("spconv", *UPBLOCKS.values(), 8)), datatype)
    made = loaded("trellis1_mesh_upblocks", save(tmp_path, mesh=net), groups=8)
    with torch.no_grad():
        compare(folder, made, x, {"cubes": net.double()(x)}, datatype)


def test_equal_channels(tmp_path, folder):
    """Where a block keeps its channels its skip has no weights."""
    x = request("scatter", 16)
    net = randomise(published.UpBlocks("spconv", 16, (16, 8), 3, 4))
    made = loaded("trellis1_mesh_upblocks", save(tmp_path, mesh=net), groups=4)
    with torch.no_grad():
        compare(folder, made, x, {"cubes": net.double()(x)})


def test_transformer_is_left_out(tmp_path):
    net = randomise(published.UpBlocks("spconv", *UPBLOCKS.values(), 8))
    tensors = {**net.state_dict(), "blocks.0.attn.to_qkv.weight": torch.zeros(3, 3)}
    checkpoint = Checkpoint({n: t.numpy() for n, t in tensors.items()})
    chosen = family("trellis1_mesh_upblocks")
    _, unused = chosen.network(checkpoint, **chosen.read(checkpoint), groups=8)
    assert unused == ["blocks.0.attn.to_qkv.weight"]


# --- random weights


def random_weights(net, network):
    """A reference with the weights of a family's network."""
    net.load_state_dict(
        {
            name: torch.from_numpy(array)
            for name, array in network.tensors.items()
            if not name.endswith("made_weight")
        }
    )
    return net


def test_random_decoder(folder):
    """Features keep their size, half of the children live, and the answers agree."""
    chosen = family("trellis2_decoder")
    options = {"model_channels": (128, 64, 32, 16, 8), "num_blocks": (2, 6, 4, 2, 0)}
    network, _ = chosen.network(Random(5), **options)
    coords, feats = chosen.request(5)
    net = random_weights(published.Decoder(32, *options.values(), 7), network).double()
    x = Sparse(Sites(coords), torch.from_numpy(feats).double())
    with torch.no_grad():
        _, logits, levels = net(x)
    for fine, coarse in zip(levels[1:], levels):
        assert 3.5 < len(fine.sites) / len(coarse.sites) < 4.5
    for level in levels:
        assert 0.5 < level.feats.pow(2).mean().sqrt() < 5
    assert all(level.abs().min() > 100 * MARGIN for level in logits)
    compare(folder, (network, chosen.more(options), None), x, shape_of(net, x)[0])


@pytest.mark.parametrize("seed", range(3))
def test_random_encoder(seed):
    options = {"model_channels": (64, 64, 128, 128), "num_blocks": (0, 4, 6, 2)}
    chosen = family("trellis2_encoder")
    network, _ = chosen.network(Random(seed), **options)
    net = random_weights(published.Encoder(6, *options.values(), 32), network)
    coords, feats = chosen.request(seed)
    with torch.no_grad():
        mean, _ = net(Sparse(Sites(coords), torch.from_numpy(feats) - 0.5))
    assert 0.3 < mean.feats.std() < 3


# --- the command line and limits


def test_commands(tmp_path, capfd):
    """Examples of families and a joined checkpoint, published with the definition's proof."""
    decoder_sizes = ["--set", "model_channels=32,16,8", "--set", "num_blocks=1,1,1"]
    encoder_sizes = ["--set", "model_channels=16,32,64", "--set", "num_blocks=1,1,1"]
    assert not main(["family", "trellis2_decoder", "-o", f"{tmp_path}/a", *decoder_sizes])
    words = ["--set", "texture=true", *encoder_sizes]
    assert not main(["family", "trellis2_encoder", "-o", f"{tmp_path}/b", *words])
    x = request("scatter", 12)
    shape = settled(randomise(decoder()), x.like(x.feats[:, :6]))
    path = save(tmp_path, shape=shape, texture=randomise(decoder(6, predicts=False)))
    np.savez(tmp_path / "request.npz", coords=x.sites.coords, feats=x.feats.float().numpy())
    words = ["--family", "trellis2_texture_decoder", "--example", f"{tmp_path}/request.npz"]
    assert not main(["checkpoint", path, *words, "-o", f"{tmp_path}/c"])
    assert "texture" in capfd.readouterr().out


def test_limits():
    """A set's limit is at least a surface's rows, and never above those of the finest set."""
    sets = family("trellis2_decoder").more({"rows_max": 1000000})["limits"]["sets"]
    assert list(sets) == [f"blocks.{i}.{n}.updown" for i, n in enumerate((4, 16, 8, 4))]
    assert list(sets.values()) == [49152, 93750, 375000, 1000000]
    sets = family("trellis2_encoder").more({})["limits"]["sets"]
    assert list(sets.values()) == [786432, 196608, 49152, 49152]
    assert family("trellis2_decoder").more({"num_blocks": (1,)}) == {}


def test_a_set_above_its_limit_is_refused(tmp_path, folder):
    x = request("blob", 6)
    net = settled(randomise(decoder()), x)
    made = loaded("trellis2_decoder", save(tmp_path, shape=net), rows_max=1000)
    with pytest.raises(ExportError, match="RESOURCE_EXHAUSTED.*limits.sets allows 1000"):
        compare(folder, made, x, shape_of(net, x)[0])


# --- refusals


def tensors_of(net):
    return {name: tensor.numpy() for name, tensor in net.state_dict().items()}


def refused(name, tensors, **given):
    chosen, checkpoint = family(name), Checkpoint(tensors)
    with pytest.raises(ExportError) as error:
        chosen.network(checkpoint, **{**chosen.read(checkpoint), **given})
    return str(error.value)


def test_missing_tensors():
    tensors = tensors_of(decoder())
    del tensors["blocks.0.1.to_subdiv.bias"], tensors["blocks.1.0.conv.weight"]
    text = refused("trellis2_decoder", tensors)
    assert "lacks 2 tensors" in text
    assert "blocks.0.1.to_subdiv.bias" in text and "blocks.1.0.conv.weight" in text


def test_a_shape_that_is_no_flexgemm_weight():
    tensors = tensors_of(decoder())
    tensors["blocks.0.0.conv.weight"] = tensors["blocks.0.0.conv.weight"].transpose(0, 4, 1, 2, 3)
    text = refused("trellis2_decoder", tensors)
    assert "blocks.0.0.conv.weight has shape [64, 64, 3, 3, 3]" in text
    assert "[64, 3, 3, 3, 64]" in text


def test_no_shape_decoder():
    """A texture decoder alone has no subdivisions: it needs those of a shape decoder."""
    text = refused("trellis2_decoder", tensors_of(decoder(predicts=False)))
    assert "to_subdiv" in text
    text = refused("trellis2_texture_decoder", tensors_of(decoder(6, predicts=False)))
    assert "shape.from_latent.weight" in text


def test_wrong_options():
    def text(*sizes, **given):
        return refused("trellis2_decoder", tensors_of(published.Decoder(*sizes, 7)), **given)

    levels = text(*DECODER.values(), num_blocks=(1, 2))
    assert "model_channels has 4 levels and num_blocks 2" in levels
    assert "a child of 3 channels becomes 16; expected a multiple" in text(4, (24, 16), (0, 0))
    assert "20 channels are no 8 children" in text(4, (20, 16), (0, 0))
    encoder = tensors_of(published.Encoder(6, (24, 64), (0, 0), 4))
    expected = "8 * 24 channels become 64; expected a multiple of 8, and means of"
    assert expected in refused("trellis2_encoder", encoder, texture=False)
    text = refused("trellis2_encoder", encoder)
    assert "no tensor tells texture: whether it encodes textures" in text
    assert "for example --set texture=false" in text


def test_what_is_assumed():
    """Options that change numbers, and that no tensor tells."""
    for name, said in (
        ("trellis2_decoder", "voxel_margin=0.5"),
        ("trellis2_texture_decoder", "voxel_margin=0.5"),
        ("trellis1_mesh_upblocks", "groups=32"),
    ):
        assert family(name).assumed({}) == said
    assert family("trellis2_decoder").assumed({"out_channels": 6}) == ""
    assert family("trellis1_mesh_upblocks").assumed({"groups": 8}) == ""


def test_latents_that_are_not_two():
    tensors = {
        f"{word}.{name}": tensor
        for word in ("shape", "texture")
        for name, tensor in tensors_of(decoder()).items()
    }
    assert "channels_in is 7" in refused("trellis2_texture_decoder", tensors, channels_in=7)


def test_a_weight_in_another_order_fails_the_proof(tmp_path, folder):
    """Kernels whose first and last axes are exchanged are a network of the same shape."""
    x = request("blob", 6)
    net = settled(randomise(decoder()), x)
    expected = shape_of(net, x)[0]
    with torch.no_grad():
        conv = net.blocks[3][0].conv
        conv.weight.copy_(conv.weight.transpose(1, 3).clone())
    made = loaded("trellis2_decoder", save(tmp_path, shape=net.float()))
    with pytest.raises(ExportError, match="other numbers than its source"):
        compare(folder, made, x, expected)
