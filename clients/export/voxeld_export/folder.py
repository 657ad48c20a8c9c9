"""A model directory as it lies on disk: its versions, and what would be lost with it.

SPDX-License-Identifier: Apache-2.0
"""

import json
import os
import re
import shutil

from .errors import ExportError, some
from .weights import wrote

VERSION_MAX = 2**31 - 1
# Of network.json; an export may change them, as it exports another network.
_NETWORK_KEYS = ("format", "description", "inputs", "layers", "outputs")


def versions_of(folder):
    """The numbers of a model's versions, ascending, as the server finds them: directories."""
    names = [
        name
        for name in os.listdir(folder)
        if re.fullmatch("[1-9][0-9]*", name) and os.path.isdir(os.path.join(folder, name))
    ]
    return sorted(number for number in map(int, names) if number <= VERSION_MAX)


def highest_version(folder):
    """The version that clients get who name none."""
    versions = versions_of(folder)
    if not versions:
        raise ExportError(f"{folder} has no version; expected 1/weights.safetensors in it")
    return versions[-1]


def read_document(folder):
    """network.json as a dict."""
    path, document = os.path.join(folder, "network.json"), _json(folder)
    for key in ("inputs", "layers", "outputs"):
        if key not in document:
            raise ExportError(f"{path} has no {key}; expected inputs, layers and outputs")
    return document


def _json(folder):
    path = os.path.join(folder, "network.json")
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except (OSError, ValueError) as error:
        raise ExportError(f"{path} is not a network.json: {error}") from error
    if not isinstance(document, dict):
        raise ExportError(f"{path} is not a network.json: expected an object of JSON")
    return document


def may_replace(folder, kept, document, replace=False):
    """ExportError where a new model directory in place of `folder` would lose something.

    kept      files that the new one has again, relative to it
    document  its network.json; None: somebody else looks at that
    replace   whether what else a model's folder has may go
    """
    if not os.path.lexists(folder):
        return
    if not os.path.isdir(folder):
        raise ExportError(f"{folder} is a file; expected a folder, REPOSITORY/NAME")
    if not os.listdir(folder):
        return
    if not os.path.isfile(os.path.join(folder, "network.json")):
        raise ExportError(
            f"{folder} has no network.json, but other things, which the export would replace; "
            "expected REPOSITORY/NAME: a new folder, an empty one or a model's"
        )
    lost = [] if replace else [*_files_lost(folder, kept), *_keys_lost(folder, document)]
    if document is not None and not replace:
        lost += _weights_lost(folder, kept)
    if lost:
        raise ExportError(
            f"{folder} would lose {some(lost)}; expected a new folder, an empty one, or one with "
            "nothing but what is written again: --replace (replace=True) lets go of the rest"
        )


def _files_lost(folder, kept):
    """Names of what `kept` does not have: versions, then files; a folder as a whole if it can."""
    lost, kept = set(), set(kept)
    for root, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(root, name))]
        for name in (*files, *links):
            path = os.path.relpath(os.path.join(root, name), folder)
            top = path.split(os.sep)[0]
            whole = not any(one.split("/")[0] == top for one in kept)
            if path.replace(os.sep, "/") not in kept:
                lost.add(top if whole else path)
    versions = [str(number) for number in versions_of(folder) if str(number) in lost]
    named = [f"version{'s' if versions[1:] else ''} {', '.join(versions)}"] if versions else []
    return [*named, *sorted(lost - set(versions))]


def _weights_lost(folder, kept):
    """Those that no export wrote: somebody made the model by hand."""
    paths = [name for name in kept if os.path.basename(name) == "weights.safetensors"]
    return [
        f"{name}, which no export wrote"
        for name in paths
        if os.path.isfile(os.path.join(folder, name)) and not wrote(os.path.join(folder, name))
    ]


def _keys_lost(folder, document):
    """Keys that somebody gave network.json, such as batching and limits."""
    if document is None:
        return []
    try:
        old = _json(folder)
    except ExportError:
        return ["network.json, which is not JSON"]
    new = json.loads(json.dumps(document))
    keys = [
        key
        for key in old
        if key not in new or (key not in _NETWORK_KEYS and old[key] != new[key])
    ]
    return [f"{', '.join(keys)} of network.json"] if keys else []


def move(made, folder):
    """The old folder goes only when the new one is in its place."""
    old = made + ".old"
    if os.path.isdir(folder):
        os.rename(folder, old)
    os.rename(made, folder)
    shutil.rmtree(old, ignore_errors=True)
