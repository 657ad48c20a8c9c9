# SPDX-License-Identifier: Apache-2.0
"""Networks whose set of voxels changes, through the daemon: a MinkUNet and a spconv encoder with
inverse convolutions, against dense numpy (dense_networks.py); kept geometries, batches, any order
of rows, and requests that cannot be served."""
import json
import os
import subprocess
import threading

import dense_networks as dense
import numpy as np
import pytest

from model_files import write_safetensors
from voxeld import Client, InvalidArgument, ResourceExhausted
from voxeld_process import Daemon

VOXELD = os.environ["VOXELD"]
CI, EPS = 3, 1e-3
SHAPE = (32, 32, 16)  # whole blocks of every stride below


class Model:
    """Layers in network.json, tensors as the library writes them, and a dense answer."""

    def __init__(self, name, seed):
        self.name, self.rng = name, np.random.default_rng(seed)
        self.tensors, self.layers, self.weights = {}, [], {}
        self.shape = SHAPE
        self.coords = "coords"

    def add(self, name, op, source, **keys):
        many = {"inputs": source} if isinstance(source, list) else {"input": source}
        self.layers.append({"name": name, "op": op, **many, **keys})
        return name

    def conv(self, name, op, source, size, ci, co, **keys):
        """A convolution with batch norm and relu, its weight in the model's layout."""
        weight = self.rng.normal(size=(*size, ci, co)) / np.sqrt(ci * np.prod(size) / 2)
        if "of" not in keys:
            keys["kernel"] = list(size)
        bias = self.rng.normal(size=co) * 0.1
        self.weights[name] = weight.astype(np.float32), bias.astype(np.float32)
        self.tensors |= self.write_weight(name, *self.weights[name])
        for tensor, value in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0),
                              ("running_var", 1.0)):
            noise = self.rng.uniform(-0.2, 0.2, size=co)
            self.tensors[f"{name}_bn.{tensor}"] = (value + noise).astype(np.float32)
        self.add(name, op, source, channels=co, layout=self.layout,
                 tensors={"weight": f"{name}.{self.word}"}, **keys)
        self.add(f"{name}_bn", "batch_norm", name, eps=EPS)
        return self.add(f"{name}_act", "relu", f"{name}_bn")

    def answer(self, coords, feats):
        """Rows of the last layer; grids() has all that lie on other sets, too."""
        return dense.rows_of(self.grids(coords, feats)[self.last], coords)

    def after(self, name, grid):
        """The batch norm and the relu that follow a convolution."""
        return dense.relu(dense.batch_norm(grid, self.tensors, f"{name}_bn", EPS))

    def write(self, repository, outputs):
        """outputs: a layer, as output "out", or a list as in network.json."""
        if isinstance(outputs, str):
            outputs = [{"name": "out", "layer": outputs}]
        folder = repository / self.name / "1"
        folder.mkdir(parents=True)
        network = {"format": 1, "inputs": {"coords": self.coords, "feats": {"channels": CI}},
                   "layers": self.layers, "outputs": outputs,
                   "limits": {"voxels_max": 20000}, "warmup": [100]}
        (repository / self.name / "network.json").write_text(json.dumps(network))
        write_safetensors(folder / "weights.safetensors", self.tensors)


def reads(fine, coarse, kernel, stride, padding):
    """The pairs of a map: how many voxels of `fine` the voxels of `coarse` read in all."""
    out, pairs = np.argwhere(coarse), 0
    for k in np.ndindex(*kernel):
        at = out[:, 1:] * stride - np.array(padding) + k
        inside = ((at >= 0) & (at < fine.shape[1:])).all(axis=1)
        pairs += int(fine[(out[inside, 0], *at[inside].T)].sum())
    return pairs


class MinkUNet(Model):
    """Three levels: kernel 2, stride 2 down; transposed onto the skip up; concat."""

    layout, word = "minkowski", "kernel"
    channels = (8, 16, 24)

    def write_weight(self, name, weight, bias):
        # [V, Ci, Co], x fastest; the bias is a row
        order = weight.transpose(2, 1, 0, 3, 4).reshape(-1, *weight.shape[3:])
        return {f"{name}.kernel": np.ascontiguousarray(order), f"{name}.bias": bias[None]}

    def __init__(self):
        super().__init__("minkunet", 7)
        c = self.channels
        at = self.conv("stem", "subm_conv", "feats", (3, 3, 3), CI, c[0])
        skips = [at]
        for level in (1, 2):
            at = self.conv(f"down{level}", "sparse_conv", at, (2, 2, 2), c[level - 1], c[level],
                           stride=2, rule="floor")
            at = self.conv(f"enc{level}", "subm_conv", at, (3, 3, 3), c[level], c[level])
            skips.append(at)
        for level in (1, 0):
            at = self.conv(f"up{level}", "transposed_conv", at, (2, 2, 2), c[level + 1],
                           c[level], stride=2, onto=skips[level])
            at = self.add(f"cat{level}", "concat", [at, skips[level]])
            at = self.conv(f"dec{level}", "subm_conv", at, (3, 3, 3), 2 * c[level], c[level])
        self.last = at

    def grids(self, coords, feats):
        w, two, out = self.weights, (2, 2, 2), {}
        at = self.after("stem", dense.subm(dense.grid_of(coords, feats, self.shape),
                                           *w["stem"]))
        skips = [at]
        for level in (1, 2):
            at = self.after(f"down{level}", dense.down(at, *w[f"down{level}"], two))
            at = self.after(f"enc{level}", dense.subm(at, *w[f"enc{level}"]))
            out[f"enc{level}_act"] = at
            skips.append(at)
        for level in (1, 0):
            at = self.after(f"up{level}", dense.up(at, *w[f"up{level}"], two, (0, 0, 0),
                                                   skips[level].mask))
            at = dense.concat(at, skips[level])
            at = self.after(f"dec{level}", dense.subm(at, *w[f"dec{level}"]))
        return out | {self.last: at}

    def cost(self, coords, feats):
        grids = self.grids(coords, feats)
        sets = [grids[self.last].mask, grids["enc1_act"].mask, grids["enc2_act"].mask]
        pairs = sum(reads(one, one, (3, 3, 3), (1, 1, 1), (1, 1, 1)) for one in sets)
        for fine, coarse in zip(sets, sets[1:]):  # down, and back
            pairs += 2 * reads(fine, coarse, (2, 2, 2), (2, 2, 2), (0, 0, 0))
        return pairs, sum(int(one.sum()) for one in sets)


class Encoder(Model):
    """spconv: k3 s2 p1, a max pool, (3, 1, 1) s (2, 1, 1), and inverse convolutions back."""

    layout, word = "spconv", "weight"

    def write_weight(self, name, weight, bias):
        order = np.ascontiguousarray(weight.transpose(4, 0, 1, 2, 3))  # [Co, Kx, Ky, Kz, Ci]
        return {f"{name}.weight": order, f"{name}.bias": bias}

    def __init__(self):
        super().__init__("encoder", 8)
        self.coords = {"name": "coords", "spatial_shape": list(SHAPE)}
        at = self.conv("stem", "subm_conv", "feats", (3, 3, 3), CI, 8)
        at = self.conv("down1", "sparse_conv", at, (3, 3, 3), 8, 12, stride=2,
                       padding=1, rule="spconv")
        at = self.conv("mid1", "subm_conv", at, (3, 3, 3), 12, 12)
        at = self.add("pool", "max_pool", at, kernel=2, stride=2, rule="spconv")
        at = self.conv("down2", "sparse_conv", at, (3, 1, 1), 12, 16,
                       stride=[2, 1, 1], rule="spconv")
        at = self.conv("up2", "inverse_conv", at, (3, 1, 1), 16, 12, of="down2")
        at = self.conv("up_pool", "inverse_conv", at, (2, 2, 2), 12, 12, of="pool")
        at = self.add("sum", "add", [at, "mid1_act"])
        self.last = self.conv("up1", "inverse_conv", at, (3, 3, 3), 12, 8, of="down1")

    def grids(self, coords, feats):
        w, two, none, one = self.weights, (2, 2, 2), (0, 0, 0), (1, 1, 1)
        stem = self.after("stem", dense.subm(dense.grid_of(coords, feats, self.shape),
                                             *w["stem"]))
        mid = self.after("down1", dense.spconv(stem, *w["down1"], two, one))
        mid = self.after("mid1", dense.subm(mid, *w["mid1"]))
        pool = dense.max_pool(mid, two, two, none)
        flat = (2, 1, 1)
        coarse = self.after("down2", dense.spconv(pool, *w["down2"], flat, none))
        at = self.after("up2", dense.up(coarse, *w["up2"], flat, none, pool.mask))
        at = self.after("up_pool", dense.up(at, *w["up_pool"], two, none, mid.mask))
        at = dense.Grid(at.values + mid.values, mid.mask)
        at = self.after("up1", dense.up(at, *w["up1"], two, one, stem.mask))
        return {"mid1_act": mid, "pool": pool, "down2_act": coarse, self.last: at}

    def cost(self, coords, feats):
        grids, same = self.grids(coords, feats), ((3, 3, 3), (1, 1, 1), (1, 1, 1))
        sets = [grids[name].mask for name in (self.last, "mid1_act", "pool", "down2_act")]
        pairs = reads(sets[0], sets[0], *same) + reads(sets[1], sets[1], *same)
        for fine, window in enumerate((((3, 3, 3), (2, 2, 2), (1, 1, 1)),
                                       ((2, 2, 2), (2, 2, 2), (0, 0, 0)),
                                       ((3, 1, 1), (2, 1, 1), (0, 0, 0)))):
            pairs += 2 * reads(sets[fine], sets[fine + 1], *window)  # down, and back
        return pairs, sum(int(one.sum()) for one in sets)


MODELS = {"minkunet": MinkUNet, "encoder": Encoder}


def cloud(seed, n, samples=1):
    """n different voxels of the box, more of them on a sheet than beside it, in any order."""
    rng = np.random.default_rng(seed)
    sheet = rng.random((samples, *SHAPE))
    sheet[..., 5:9] -= 0.5
    flat = np.argsort(sheet.reshape(-1))[:n]
    coords = np.stack(np.unravel_index(rng.permutation(flat), sheet.shape), axis=1)
    return coords.astype(np.int32), rng.normal(size=(n, CI)).astype(np.float32)


@pytest.fixture(scope="module")
def models():
    return {name: kind() for name, kind in MODELS.items()}


@pytest.fixture(scope="module")
def folder(models, tmp_path_factory):
    path = tmp_path_factory.mktemp("levels")
    for model in models.values():
        model.write(path, model.last)
    return path


@pytest.fixture(scope="module")
def daemon(folder, tmp_path_factory):
    with Daemon(folder, tmp_path_factory.mktemp("daemon"), "--device", "cpu") as one:
        yield one


@pytest.fixture(scope="module")
def client(daemon):
    with Client(daemon.grpc) as one:
        yield one


# fp32 against float64: at most 432 products of order 1 in a sum, through ten layers whose norms
# keep the size; wrong maps are wrong by 1.
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("n, samples", [
    (1, 1), (40, 1), pytest.param(3000, 1, marks=pytest.mark.release), (6000, 3)])
def test_the_answer_is_that_of_dense_arrays(client, models, name, n, samples):
    coords, feats = cloud(n, n, samples)
    got = client.infer(name, coords, feats)["out"]
    np.testing.assert_allclose(got, models[name].answer(coords, feats), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_a_kept_geometry_gives_the_same_bits(client, name):
    coords, feats = cloud(11, 2500, 2)
    first = client.infer(name, coords, feats, coords_ref="", timing=True)
    again = client.infer(name, None, feats, coords_ref=first.coords_ref, timing=True)
    assert not first.parameters["geometry_hit"] and again.parameters["geometry_hit"]
    np.testing.assert_array_equal(first["out"], again["out"])


@pytest.mark.release
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("n, samples", [(1, 1), (2600, 2)])
def test_the_cost_is_that_of_all_sets_and_maps(daemon, client, models, name, n, samples):
    coords, feats = cloud(n + 5, n, samples)
    pairs, voxels = models[name].cost(coords, feats)
    labels = f'{{model="{name}",version="1"}}'
    before = daemon.metrics()
    first = client.infer(name, coords, feats, coords_ref="", timing=True)
    kept = client.infer(name, None, feats, coords_ref=first.coords_ref, timing=True)
    for answer in first, kept:
        assert (answer.parameters["pairs"], answer.parameters["set_voxels"]) == (pairs, voxels)
    after = daemon.metrics()
    for metric, each in (("pairs", pairs), ("set_voxels", voxels), ("voxels", n)):
        series = f"voxeld_model_{metric}_total{labels}"
        assert after[series] - before[series] == 2 * each, series


@pytest.mark.parametrize("name", MODELS)
def test_rows_come_in_the_order_of_the_request(client, name):
    coords, feats = cloud(12, 1500, 2)
    got = client.infer(name, coords, feats)["out"]
    order = np.random.default_rng(1).permutation(len(coords))
    other = client.infer(name, np.ascontiguousarray(coords[order]), feats[order])["out"]
    np.testing.assert_array_equal(got[order], other)


def test_many_at_once_have_the_bits_that_they_have_alone(daemon, client):
    requests = [(name, *cloud(100 + i, 50 + 400 * (i % 5), 1 + i % 3))
                for i, name in enumerate(list(MODELS) * 8)]
    alone = [client.infer(name, coords, feats)["out"] for name, coords, feats in requests]
    together = [None] * len(requests)

    def send(i):
        name, coords, feats = requests[i]
        with Client(daemon.grpc) as one:
            together[i] = one.infer(name, coords, feats)["out"]

    threads = [threading.Thread(target=send, args=(i,)) for i in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, answer in enumerate(alone):
        np.testing.assert_array_equal(together[i], answer)


@pytest.mark.parametrize("at, value", [(1, -1), (1, 32), (3, 16)])
def test_a_voxel_outside_of_the_spatial_shape_is_refused_alone(client, models, at, value):
    coords, feats = cloud(13, 200)
    coords[17, at] = value
    came = ", ".join(map(str, coords[17]))
    with pytest.raises(InvalidArgument, match=rf"coords row 17 \({came}\) lies outside of the "
                                              "network's spatial_shape: expected 0 to 31, 0 to "
                                              "31 and 0 to 15"):
        client.infer("encoder", coords, feats)
    coords, feats = cloud(14, 200)
    np.testing.assert_allclose(client.infer("encoder", coords, feats)["out"],
                               models["encoder"].answer(coords, feats), rtol=1e-4, atol=1e-4)


# Smaller, larger and odd along an axis: other voxels on other sets than the request's.
@pytest.mark.parametrize("shape", [(32, 35, 17), (33, 32, 16), (40, 37, 15)])
def test_a_request_may_have_a_spatial_shape_of_its_own(client, models, shape):
    coords, feats = cloud(15, 1800, 2)
    own = Encoder()
    own.shape = shape
    expected, cost = own.answer(coords, feats), own.cost(coords, feats)
    first = client.infer("encoder", coords, feats, coords_ref="", spatial_shape=shape, timing=True)
    model = client.infer("encoder", coords, feats, timing=True)  # the same coords, kept
    for answer in (first, client.infer("encoder", None, feats, coords_ref=first.coords_ref,
                                       spatial_shape="x".join(map(str, shape)), timing=True)):
        np.testing.assert_allclose(answer["out"], expected, rtol=1e-4, atol=1e-4)
        assert (answer.parameters["pairs"], answer.parameters["set_voxels"]) == cost
    np.testing.assert_allclose(model["out"], models["encoder"].answer(coords, feats), rtol=1e-4,
                               atol=1e-4)
    assert model.parameters["pairs"] != first.parameters["pairs"]


@pytest.mark.parametrize("name, shape, why", [
    ("encoder", (32, 16, 16), "lies outside of the request's spatial_shape: expected 0 to 31, 0 "
                              "to 15 and 0 to 15"),
    ("encoder", (4, 32, 16), '4x32x16: layer "down2" reads 1 voxels along column 1 of coords'),
    ("encoder", "32x32", "'spatial_shape': expected three sizes of 1 to 131072"),
    ("minkunet", (32, 32, 16), "model 'minkunet' has no spatial_shape")])
def test_a_spatial_shape_that_cannot_be_is_refused(client, name, shape, why):
    coords, feats = cloud(16, 300)
    if shape == (4, 32, 16):
        kept = coords[:, 1] < 4
        coords, feats = np.ascontiguousarray(coords[kept]), feats[kept]
    with pytest.raises(InvalidArgument) as refused:
        client.infer(name, coords, feats, spatial_shape=shape)
    assert why in str(refused.value)


@pytest.mark.release
def test_the_command_line_sends_a_spatial_shape(daemon, folder, tmp_path):
    coords, feats = cloud(17, 400)
    own = Encoder()
    own.shape = (33, 35, 17)
    np.savez(tmp_path / "in.npz", coords=coords, feats=feats)
    subprocess.run([os.environ["VOXEL"], "infer", "--server", daemon.grpc, "--model", "encoder",
                    tmp_path / "in.npz", "-o", tmp_path / "out.npz", "--spatial-shape",
                    "33x35x17"], check=True)
    with np.load(tmp_path / "out.npz") as got:
        np.testing.assert_allclose(got["out"], own.answer(coords, feats), rtol=1e-4, atol=1e-4)


def test_check_and_models_show_the_spatial_shape(daemon, folder):
    """Of the model that has one: a voxel outside of it is refused."""
    line = ("spatial_shape 32x32x16: columns 1 to 3 are 0 to 31, 0 to 31 and 0 to 15; a request "
            "may send another\n")
    for name, has in (("encoder", True), ("minkunet", False)):
        said = subprocess.run([VOXELD, "check", folder / name], capture_output=True, text=True,
                              check=True).stdout
        assert (line in said, "spatial_shape" in said) == (has, has), said
    said = subprocess.run([os.environ["VOXEL"], "models", "--server", daemon.grpc],
                          capture_output=True, text=True, check=True).stdout
    encoder, minkunet = said.split("minkunet version")
    assert encoder.endswith("\n  limit   spatial_shape    32x32x16\n"), said
    assert "spatial_shape" not in minkunet, said


def test_check_prints_the_sets(folder):
    said = subprocess.run([VOXELD, "check", folder / "encoder"], capture_output=True, text=True,
                          check=True).stdout
    lines = said.splitlines()
    table = lines[lines.index(next(x for x in lines if x.startswith("sets of voxels"))) + 2:][:4]
    assert [line.split()[:3] for line in table] == [
        ["0", "coords", "1x1x1"], ["1", "down1", "2x2x2"], ["2", "pool", "4x4x4"],
        ["3", "down2", "8x4x4"]], said
    assert "spconv kernel 3x3x3 stride 2x2x2 padding 1x1x1 of set 0" in table[1]


def test_a_set_larger_than_its_limit_is_refused_with_numbers(tmp_path, tmp_path_factory):
    work = tmp_path_factory.mktemp("daemon")
    model = MinkUNet()
    model.write(tmp_path, model.last)
    path = tmp_path / "minkunet" / "network.json"
    network = json.loads(path.read_text())
    network["limits"]["sets"], network["warmup"] = {"down1": 10}, []
    path.write_text(json.dumps(network))
    coords, feats = cloud(3, 2000)
    with Daemon(tmp_path, work, "--device", "cpu") as one, Client(one.grpc) as client:
        with pytest.raises(ResourceExhausted, match=r'set 1, made by layer "down1", has at least '
                                                    r"\d+ voxels; limits.sets allows 10"):
            client.infer("minkunet", coords, feats)
        assert len(client.infer("minkunet", coords[:1], feats[:1])["out"]) == 1
