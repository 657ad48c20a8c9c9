# SPDX-License-Identifier: Apache-2.0
"""Every operation of network.json through the daemon, against its definition in float64 on dense
boxes (definition.py): features to 1e-5 of the largest, coordinates exactly and in their order.  A
list of mistakes in the definition, each of which must be noticed, shows that the test can fail."""
import re
from fractions import Fraction

import definition as d
import numpy as np
import pytest

from definition_cases import NETWORKS, OPS, SHAPE, clouds
from voxeld import Client
from voxeld_process import Daemon

# f32: a sum of 1,000 products is off by some 1e-6 of the largest sum, and the deepest network here
# has 70 layers whose norms keep the size.
BOUND = 1e-5


@pytest.fixture(scope="module")
def networks():
    return {name: make() for name, make in NETWORKS.items()}


@pytest.fixture(scope="module")
def requests(networks):
    """{(network, cloud): (coords, feats)}"""
    return {(name, cloud): request for name, network in networks.items()
            for cloud, request in clouds(network).items()}


@pytest.fixture(scope="module")
def answers(networks, requests, tmp_path_factory):
    folder = tmp_path_factory.mktemp("definition")
    for name, network in networks.items():
        network.write(folder / name)
    with Daemon(folder, tmp_path_factory.mktemp("daemon"), "--device", "cpu") as daemon, \
            Client(daemon.grpc) as client:
        return {(name, cloud): client.infer(name, *request)
                for (name, cloud), request in requests.items()}


def difference(network, answer, coords, feats):
    """The largest difference of an output, as a share of its largest number; infinite where
    coordinates or strides differ.  With the name of the output."""
    defined, worst = network.answer(coords, feats), (0.0, "")
    for name in network.wanted():
        tensor, got = defined[name], answer[name].astype(np.float64)
        if isinstance(tensor, np.ndarray):   # dense
            assert got.shape == tensor.shape, name
            worst = max(worst, (relative(got, tensor), name))
            continue
        rows = coords
        if tensor.on is not defined["feats"].on:
            rows = tensor.on.rows()
            here = answer.sparse(name)
            if not np.array_equal(here.coords, rows) or \
                    tuple(map(Fraction, here.stride)) != tensor.on.stride:
                return np.inf, name
        elif "stride" in answer.output_parameters.get(name, {}):
            return np.inf, name
        if not np.isfinite(got).all():
            return np.inf, name
        wanted = tensor.at(rows)
        assert got.shape == wanted.shape, name
        worst = max(worst, (relative(got, wanted), name))
    return worst


def relative(got, wanted):
    return np.abs(got - wanted).max(initial=0.0) / np.abs(wanted).max(initial=1e-30)


@pytest.mark.parametrize("name", NETWORKS)
def test_answers_are_those_of_the_definition(networks, requests, answers, name):
    for (network, cloud), request in requests.items():
        if network == name:
            off, output = difference(networks[name], answers[name, cloud], *request)
            assert off <= BOUND, f"output {output} of {name} on {cloud}: {off:.3g}"


def test_every_operation_is_here(networks):
    known = set(re.findall(r'VX_ROW\(\w+, "(\w+)"', OPS))
    assert known == {layer["op"] for network in networks.values() for layer in network.layers}


def test_the_clouds_are_what_they_are_for(networks, requests):
    coords = np.concatenate([coords for coords, _ in requests.values()])
    for axis in (1, 2, 3):
        assert coords[:, axis].min() == d.AXIS_MIN and coords[:, axis].max() == d.AXIS_MAX
    assert len(np.unique(coords[:, 0])) > 3 and coords[:, 0].max() == 511
    inside = np.concatenate([coords for (name, _), (coords, _) in requests.items()
                             if networks[name].shape == SHAPE])
    assert (inside[:, 1:].min(axis=0) == 0).all()
    assert (inside[:, 1:].max(axis=0) == np.array(SHAPE) - 1).all()


# --- Mistakes, each in one function of the definition.

def turned(weight, offset):
    """z and x exchanged, where the kernel is a cube."""
    cube = len(set(weight.shape[1:4])) == 1
    return weight[(slice(None), *(offset[::-1] if cube else offset))].T


def mirrored(weight, offset):
    return weight[(slice(None), *(-1 - k for k in offset))].T


def mirrored_upward(p, k, w, axis):
    return ORIGINAL["upward"](p, w.kernel[axis] - 1 - k, w, axis)


def truncated(p, stride):
    return np.trunc(p / stride).astype(int)


def one_lower(q, k, w, axis):
    """spconv's padding one too small where there is one."""
    return ORIGINAL["downward"](q, k, w, axis) + min(w.padding[axis], 1)


def undilated(q, k, w, axis):
    return q * w.stride[axis] - w.padding[axis] + k


def interleaved(rows, matrix, groups):
    """Group g of the outputs reads every groups-th input from g on."""
    outs = np.split(matrix, groups, axis=-1)
    return np.concatenate([rows[..., g::groups] @ o for g, o in enumerate(outs)], axis=-1)


def largest_of_all(parts, there, window):
    return np.where(there, parts, -np.inf).max(axis=0)


def largest_from_0(parts, there, window):
    return np.maximum(ORIGINAL["largest"](parts, there, window), 0.0)


def mean_of_the_window(parts, there):
    return parts.sum(axis=0) / len(parts)


def shape_of_all(shape, w):
    return tuple(n + 1 for n in ORIGINAL["spconv_shape"](shape, w))


def z_first(x, y, z, stride):
    return z + stride[2] * (y + stride[1] * x)


def unbiased(rows, axes):
    centred, variance = ORIGINAL["statistics"](rows, axes)
    count = np.prod([rows.shape[a] for a in axes])
    return centred, variance * count / max(count - 1, 1)


def eps_outside(rows, axes, eps):
    centred, variance = d.statistics(rows, axes)
    return centred / (np.sqrt(variance) + eps)


def never_centred(kernel, dilation):
    return (0, 0, 0)


def centred_down(kernel, dilation):
    return tuple(k // 2 * step for k, step in zip(kernel, dilation))


def gelu_of_tanh(v):
    return 0.5 * v * (1 + np.tanh(np.sqrt(2 / np.pi) * (v + 0.044715 * v ** 3)))


def softmax_of_rows(v):
    return np.moveaxis(ORIGINAL["softmax"](np.moveaxis(v, 0, -1)), -1, 0)


def norm_of_all_samples(x, groups, eps):
    rows = [v[x.on.boxes[s][1]] for s, v in x.values.items()]
    whole = np.concatenate(rows).reshape(sum(map(len, rows)), groups, -1)
    parts = np.split(d.normalised(whole, (0, 2), eps), np.cumsum([len(r) for r in rows])[:-1])
    out = {s: np.zeros_like(v) for s, v in x.values.items()}
    for s, part in zip(out, parts):
        out[s][x.on.boxes[s][1]] = part.reshape(len(part), -1)
    return d.tensor_on(x.on, out)


def logits_by_size(logits, top):
    return ORIGINAL["largest_logits"](d.each(logits, np.abs), top)


def logits_from_minus_a_tenth(logits):
    return {s: value[..., 0] > -0.1 for s, value in logits.values.items()}


def mean_of_all_voxels(x, on, mode):
    pooled = ORIGINAL["sample_pool"](x, on, mode)
    whole = np.mean(list(pooled.values.values()), axis=0)
    return d.tensor_on(on, {s: whole for s in pooled.values})


def folded_the_other_way(x, shape, samples, fold):
    out = ORIGINAL["dense"](x, shape, samples, False)
    return np.moveaxis(out, 1, 2).reshape(samples, -1, *shape[1:]) if fold else out


def sum_of_points(total, count):
    return total


def count_of_all_corners(total, weights):
    return total


def next_corner(p, cell, n):
    return 1 - np.abs((p + 0.5) / n - cell - 0.5)


def rows_by_z(where):
    found = ORIGINAL_ROWS(where)
    return found[np.lexsort(found.T[[1, 2, 3, 0]])]


# By the network that must notice it.
MISTAKES = [
    ("submanifold", "weight_at", turned), ("strided_floor", "weight_at", turned),
    ("strided_spconv", "weight_at", mirrored), ("inverse", "upward", mirrored_upward),
    ("transposed", "upward", mirrored_upward), ("generative", "upward", mirrored_upward),
    ("strided_floor", "floor_of", truncated), ("blocks", "floor_of", truncated),
    ("strided_spconv", "downward", one_lower), ("inverse", "downward", one_lower),
    ("pools_spconv", "downward", one_lower), ("submanifold", "downward", undilated),
    ("strided_floor", "downward", undilated), ("submanifold", "grouped", interleaved),
    ("strided_groups", "grouped", interleaved), ("pools_spconv", "largest", largest_of_all),
    ("pools_floor", "largest", largest_from_0), ("pools_spconv", "mean", mean_of_the_window),
    ("pools_floor", "mean", mean_of_the_window), ("blocks", "mean", mean_of_the_window),
    ("strided_spconv", "spconv_shape", shape_of_all), ("blocks", "child_number", z_first),
    ("norms", "statistics", unbiased), ("norms", "normalised", eps_outside),
    ("norms", "sample_norm", norm_of_all_samples), ("strided_floor", "centre", never_centred),
    ("transposed", "centre", never_centred), ("strided_floor", "centre", centred_down),
    ("curves", "gelu", gelu_of_tanh), ("curves", "softmax", softmax_of_rows),
    ("generative", "AXIS_MAX", 1 << 20), ("generative", "AXIS_MIN", -1 << 20),
    ("predicted", "child_number", z_first), ("predicted", "largest_logits", logits_by_size),
    ("predicted", "positive", logits_from_minus_a_tenth),
    ("samples", "sample_pool", mean_of_all_voxels),
    ("dense_outputs", "dense", folded_the_other_way), ("points", "floor_of", truncated),
    ("points", "point_mean", sum_of_points), ("points_spconv", "point_mean", sum_of_points),
    ("points", "weighted_mean", count_of_all_corners), ("points", "nearness", next_corner),
]
MISTAKES = [mistake for mistake in MISTAKES if mistake[0] in NETWORKS]
ORIGINAL = {name: getattr(d, name) for _, name, _ in MISTAKES}
ORIGINAL_ROWS = d.Set.rows


def noticed(networks, requests, answers, name):
    return any(difference(networks[name], answers[name, cloud], *request)[0] > 10 * BOUND
               for (network, cloud), request in requests.items() if network == name)


@pytest.mark.parametrize("network, function, mistake", MISTAKES)
def test_a_mistake_is_noticed(networks, requests, answers, network, function, mistake,
                              monkeypatch):
    monkeypatch.setattr(d, function, mistake)
    assert noticed(networks, requests, answers, network)


def test_another_order_of_rows_is_noticed(networks, requests, answers, monkeypatch):
    monkeypatch.setattr(d.Set, "rows", rows_by_z)
    assert noticed(networks, requests, answers, "strided_floor")
