"""The functions on points of spvnas and of what is built on it: voxelize and devoxelize.

Source: spvnas, core/models/utils.py, of TorchSparse 1.4 and of 2.1.  They belong to the network's
own files, and are found by name and arguments where its modules look for them.

SPDX-License-Identifier: Apache-2.0
"""

import inspect
import sys

from ..errors import ExportError

_ARGUMENTS = {
    "initial_voxelize": ["z", "init_res", "after_res"],
    "point_to_voxel": ["x", "z"],
    "voxel_to_point": ["x", "z", "nearest"],
}


def points_of(library, trace):
    """[(module of Python, name, added)] for Library.methods."""
    files = {type(module).__module__ for module in trace.net.modules()}
    made = {
        "initial_voxelize": _initial_voxelize,
        "point_to_voxel": _point_to_voxel,
        "voxel_to_point": _voxel_to_point,
    }
    return [
        (sys.modules[file], name, _added(library, make))
        for file in sorted(files & set(sys.modules))
        for name, make in made.items()
        if _is(vars(sys.modules[file]).get(name), _ARGUMENTS[name])
    ]


def _is(function, arguments):
    return (
        inspect.isfunction(function) and list(inspect.signature(function).parameters) == arguments
    )


def _added(library, make):
    def added(trace, first, args, kwargs, result):
        make(library, trace, first, args, kwargs, result)

    return added


def _given(names, args, kwargs):
    return {**dict(zip(names, args)), **kwargs}


def _initial_voxelize(library, trace, z, args, kwargs, result):
    given = _given(["init_res", "after_res"], args, kwargs)
    step = given["after_res"] / given["init_res"]
    said = f"initial_voxelize {trace.said()}"
    if abs(step - round(step)) > 1e-6 * step or round(step) < 1:
        raise ExportError(
            f"{said} makes voxels of {step:g} steps of its points; expected a whole number"
        )
    source = trace.value(z.F, said)
    on = ("voxelized", source.on, round(step))
    if source.on in library.shapes:
        library.shapes[on] = [(d - 1) // round(step) + 1 for d in library.shapes[source.on]]
    library.finish(
        trace,
        trace.network.add("voxelize", [source], trace.place("voxelize"), on=on, stride=round(step)),
        result,
    )


def _point_to_voxel(library, trace, x, args, kwargs, result):
    z = _given(["z"], args, kwargs)["z"]
    said = f"point_to_voxel {trace.said()}"
    source, onto = trace.value(z.F, said), trace.value(x.F, said)
    value = trace.network.add(
        "voxelize", [source], trace.place("voxelize"), on=onto.on, onto=onto.layer
    )
    library.finish(trace, value, result)


def _voxel_to_point(library, trace, x, args, kwargs, result):
    del library
    given = _given(["z", "nearest"], args, kwargs)
    said = f"voxel_to_point {trace.said()}"
    if given.get("nearest"):
        raise ExportError(
            f"{said} has nearest=True, where TorchSparse multiplies by a trilinear weight"
        )
    source, points = trace.value(x.F, said), trace.value(given["z"].F, said)
    value = trace.network.add(
        "devoxelize",
        [source],
        trace.place("devoxelize"),
        on=points.on,
        mode="trilinear",
        onto=None if points.on == 0 else points.layer,
    )
    trace.bind(result.F, value)
