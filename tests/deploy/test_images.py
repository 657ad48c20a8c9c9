# SPDX-License-Identifier: Apache-2.0
"""Images of other people that deploy/ names: each of one version, and of those that tests run here
the same major version or Debian release.  Reads files only."""

import re

import pytest
import yaml

from deployed import DEPLOY, ROOT, run, tool

COMPOSE = DEPLOY / "compose.yaml"
# A version with at least two numbers; only Debian's releases have one.
VERSION = re.compile(r"v?\d+(\.\d+)+([-.].+)?")


def services():
    return yaml.safe_load(COMPOSE.read_text())["services"]


def image(text):
    """(name, tag) of an image, or of what stands in when ${VARIABLE:-IMAGE} is not set."""
    text = re.sub(r"^\$\{\w+:-(.+)\}$", r"\1", text)
    name, _, tag = text.rpartition(":")
    assert name and "$" not in text, f"{text}: expected NAME:TAG"
    return name, tag


def foreign():
    """{name: tag} of the services that are not built from the tree."""
    return dict(image(one["image"]) for one in services().values() if "build" not in one)


def bases():
    """{argument: (name, tag)} of the Dockerfile's stages."""
    text = (DEPLOY / "Dockerfile").read_text()
    found = re.findall(r"^ARG (\w*BASE)=(\S+)$", text, re.MULTILINE)
    return {name: image(value) for name, value in found}


def test_images_of_others_are_pinned():
    assert set(foreign()) == {"prom/prometheus", "grafana/grafana"}
    for name, tag in foreign().items():
        assert VERSION.fullmatch(tag), f"{name}:{tag}: expected a version"
    assert set(bases()) == {"BASE", "CUDA_BASE", "ROCM_BASE"}
    for name, tag in bases().values():
        assert name == "debian" or VERSION.fullmatch(tag), f"{name}:{tag}: expected a version"


@pytest.mark.parametrize("text", ["prometheus", "prometheus:${TAG}"])
def test_an_image_without_a_tag_is_found(text):
    with pytest.raises(AssertionError, match="expected NAME:TAG"):
        image(text)


@pytest.mark.parametrize("tag", ["latest", "main", "v2", "12-slim", "", "sha-1.2"])
def test_a_tag_that_moves_is_found(tag):
    assert not VERSION.fullmatch(tag)


def test_our_services_are_the_targets_of_the_dockerfile():
    targets = set(re.findall(r"^FROM \S+ AS (\w+)$", (DEPLOY / "Dockerfile").read_text(), re.M))
    for name, one in services().items():
        if "build" in one:
            assert image(one["image"]) == ("voxeld", one["build"]["target"]), name
            assert one["build"]["target"] in targets
            assert (DEPLOY / one["build"]["context"] / one["build"]["dockerfile"]).exists()


def test_prometheus_is_one_that_the_tests_run():
    """The alerts are tested with Debian's; the image is newer, and reads the same files."""
    program = tool("prometheus")
    if not program:
        pytest.skip("SKIPPED deploy_images: no prometheus (deploy/install-deps gets it)")
    done = run(program, "--version")
    ran = re.search(r"version (\d+)\.(\d+)\.", done.stdout + done.stderr)
    tag = re.fullmatch(r"v(\d+)\.(\d+)\.\d+", foreign()["prom/prometheus"])
    assert tag[1] == ran[1], f"compose.yaml has {tag[0]}, the tests run {ran[0]}"
    assert int(tag[2]) >= int(ran[2])


def test_the_images_have_the_debian_whose_packages_install_deps_names():
    assert bases()["BASE"][1] == "12-slim"
    assert "Debian 12" in (DEPLOY / "install-deps").read_text()
    assert "Debian 12" in (ROOT / "CONTRIBUTING.md").read_text()
