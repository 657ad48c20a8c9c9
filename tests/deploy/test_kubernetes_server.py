# SPDX-License-Identifier: Apache-2.0
"""deploy/kubernetes on a real control plane: each overlay is applied, wrong objects are refused."""

import copy

import pytest

from deployed import KUBERNETES, documents, run, tool
from kubernetes_server import Server, for_1_20, missing

OVERLAYS = ("cpu", "nvidia", "amd")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    lacking = missing()
    if lacking:
        pytest.skip(
            f"SKIPPED deploy_kubernetes_server: no {', '.join(lacking)} "
            "(deploy/install-deps --kubernetes gets them)"
        )
    with Server(tmp_path_factory.mktemp("server")) as one:
        yield one


def built(name):
    done = run(tool("kubectl"), "kustomize", KUBERNETES / "overlays" / name)
    assert done.returncode == 0, done.stderr
    return [for_1_20(one) for one in documents(done.stdout)]


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_server_takes_an_overlay(server, name):
    objects = built(name)
    assert server.kubectl("create", "namespace", name).returncode == 0
    for _ in range(2):  # a second time changes nothing and is no conflict
        done = server.apply(objects, name)
        assert done.returncode == 0, done.stdout + done.stderr
    kinds = {one["kind"].lower() for one in objects}
    there = server.kubectl("get", ",".join(sorted(kinds)), "-n", name, "-o", "name").stdout.split()
    assert {one["metadata"]["name"] for one in objects} <= {one.split("/")[1] for one in there}


def spec_of(objects, kind):
    return next(one for one in objects if one["kind"] == kind)["spec"]


def wrong_selector(objects):
    spec_of(objects, "Deployment")["selector"]["matchLabels"] = {"app": "another"}


def wrong_port(objects):
    spec_of(objects, "Service")["ports"][0]["port"] = 70000


def wrong_mount(objects):
    pod = spec_of(objects, "Deployment")["template"]["spec"]
    pod["containers"][0]["volumeMounts"][0]["name"] = "another"


def wrong_scale(objects):
    spec_of(objects, "HorizontalPodAutoscaler")["maxReplicas"] = 1


WRONG = [
    (wrong_selector, "`selector` does not match template `labels`"),
    (wrong_port, "70000"),
    (wrong_mount, "volumeMounts[0].name"),
    (wrong_scale, "maxReplicas"),
]


@pytest.mark.parametrize("change, sentence", WRONG, ids=[one[0].__name__ for one in WRONG])
def test_the_server_refuses_what_no_schema_finds(server, change, sentence):
    objects = copy.deepcopy(built("cpu"))
    change(objects)
    server.kubectl("create", "namespace", "wrong")
    done = server.apply(objects, "wrong")
    assert done.returncode != 0, done.stdout
    assert "is invalid" in done.stderr and sentence in done.stderr, done.stderr
