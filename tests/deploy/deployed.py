# SPDX-License-Identifier: Apache-2.0
"""What the tests of deploy/ share: where things are, tools, settings, metrics."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
TOOLS = ROOT / "build" / "tools"
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "clients" / "python")]

SIZES = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
MILLISECONDS = {"us": 0.001, "ms": 1, "s": 1000, "": 1}


def tool(name):
    """The path of a program that deploy/install-deps gets, or None."""
    ours = TOOLS / name
    return str(ours) if ours.exists() else shutil.which(name)


def run(*command, **options):
    return subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def documents(text):
    return [one for one in yaml.safe_load_all(text) if one]


def settings():
    """{name: form} of every setting of voxeld."""
    text = (ROOT / "server" / "base" / "config.def").read_text()
    return {
        name: form
        for form, name in re.findall(r"^VX_(I64|TEXT|FLAG|ENUM)\((\w+),", text, re.MULTILINE)
    }


def bytes_of(value):
    """Of a setting: 1048576 or "1M"."""
    found = re.fullmatch(r"(\d+)([KMGT]?)", str(value))
    return int(found[1]) * SIZES.get(found[2], 1)


def milliseconds_of(value):
    """Of a setting: 5000 or "5s"."""
    found = re.fullmatch(r"(\d+)(us|ms|s|)", str(value))
    return int(found[1]) * MILLISECONDS[found[2]]


def settings_of_pod(objects, pod):
    """What voxeld is told by a pod's file and flags, and the flags by themselves."""
    container = pod["containers"][0]
    flags = dict(re.fullmatch(r"--([\w-]+)=(.*)", one).groups() for one in container["args"][1:])
    flags = {name.replace("-", "_"): value for name, value in flags.items()}
    path = flags.pop("config", None)
    said = json.loads(file_of_pod(objects, pod, path)) if path else {}
    return {**said, **flags}


def file_of_pod(objects, pod, path):
    """The text of a file that a ConfigMap puts into the first container; KeyError if none does."""
    folder, name = path.rsplit("/", 1)
    mounts = {one["mountPath"]: one["name"] for one in pod["containers"][0]["volumeMounts"]}
    volumes = {one["name"]: one for one in pod["volumes"]}
    config = volumes[mounts[folder]]["configMap"]["name"]
    maps = {o["metadata"]["name"]: o for o in objects if o["kind"] == "ConfigMap"}
    return maps[config]["data"][name]


def metric_types():
    """{name: type} of every metric of voxeld; of a histogram its base name."""
    text = (ROOT / "server" / "metrics" / "metrics.def").read_text()
    rows = re.findall(r"^VX_METRIC_\w+\((\w+), (\w+),", text, re.MULTILINE)
    histograms = re.findall(r"^VX_HISTOGRAM\(\w+, (\w+),", text, re.MULTILINE)
    return {**dict(rows), **dict.fromkeys(histograms, "histogram")}


def metric_names():
    """Every name of a series of voxeld."""
    names = set()
    for name, kind in metric_types().items():
        endings = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        names.update(name + ending for ending in endings)
    return names
