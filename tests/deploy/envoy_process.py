# SPDX-License-Identifier: Apache-2.0
"""An Envoy under test, with deploy/envoy."""

import json
import pathlib
import re
import subprocess
import time
import urllib.request

import pytest
import yaml

from deployed import DEPLOY, run, tool
from replica_process import address
from voxeld_process import PATIENCE

CONFIG = DEPLOY / "envoy" / "envoy.yaml"
CONFIG_TLS = DEPLOY / "envoy" / "envoy-tls.yaml"
SECRETS = DEPLOY / "envoy" / "tls"
FILES = "/etc/envoy/tls"


def need():
    """The program."""
    found = tool("envoy")
    if not found:
        pytest.skip("SKIPPED deploy_envoy: no envoy (deploy/install-deps gets it)")
    return found


def addressed(said, listen, admin, replicas):
    """The tree's configuration with addresses of the test's own; nothing else differs."""
    resources = said["static_resources"]
    (group,) = resources["clusters"][0]["load_assignment"]["endpoints"]
    places = [one["endpoint"]["address"] for one in group["lb_endpoints"]]
    assert len(places) == len(replicas)
    wanted = [(said["admin"]["address"], admin), (resources["listeners"][0]["address"], listen)]
    for place, where in [*wanted, *zip(places, replicas)]:
        host, port = where.rsplit(":", 1)
        place["socket_address"] = {"address": host, "port_value": int(port)}
    return said


def read(config, files=FILES):
    """A configuration of the tree, with the files of TLS in another folder."""
    return yaml.safe_load(pathlib.Path(config).read_text().replace(FILES, str(files)))


class Envoy:
    """`with Envoy(program, folder, replicas) as proxy:`, ready when it sees the replicas.

    said     its configuration, in which addresses are replaced
    tls      a client's Tls, if it is for TLS
    up       names of the replicas to wait for; by default all
    """

    def __init__(self, program, folder, replicas, said=None, tls=None, up=None):
        self.grpc, self.admin, self.tls = address(21811), address(21812), tls
        self.places = {one.name: one.grpc.split(",")[0] for one in replicas}
        self.up = self.places if up is None else up
        said = addressed(said or read(CONFIG), self.grpc, self.admin, list(self.places.values()))
        config = pathlib.Path(folder) / "envoy.yaml"
        config.write_text(yaml.safe_dump(said))
        self.log_path = pathlib.Path(folder) / "envoy.log"
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [program, "-c", str(config), "--concurrency", "2", "--disable-hot-restart"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def __enter__(self):
        try:
            for name in self.up:
                self.wait_up(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def ask(self, path):
        with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=PATIENCE) as reply:
            return reply.read().decode()

    def counter(self, name):
        """A number of Envoy's own; 0 until it has it."""
        found = re.search(rf"^{re.escape(name)}: (\d+)$", self.ask("/stats"), re.MULTILINE)
        return int(found[1]) if found else 0

    def healthy(self):
        """{replica: whether Envoy sends it calls}; empty until it answers."""
        try:
            (cluster,) = json.loads(self.ask("/clusters?format=json")).get("cluster_statuses", [{}])
        except OSError:
            return {}
        out = {}
        for host in cluster.get("host_statuses", []):
            at, status = host["address"]["socket_address"], host["health_status"]
            wrong = {name for name, value in status.items() if name.startswith("failed_") and value}
            up = not wrong and status["eds_health_status"] == "HEALTHY"
            out[f"{at['address']}:{at['port_value']}"] = up
        return {name: out[place] for name, place in self.places.items() if place in out}

    def wait_for(self, what, condition):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            assert self.process.poll() is None, self.log_path.read_text()[-4000:]
            if condition():
                return
            time.sleep(0.02)  # sleep: between two questions
        raise AssertionError(f"waited {PATIENCE} s for {what}: {self.log_path.read_text()[-4000:]}")

    def wait_up(self, name):
        self.wait_for(f"{name} to be healthy", lambda: self.healthy().get(name) is True)

    def wait_down(self, name):
        self.wait_for(f"{name} to be unhealthy", lambda: self.healthy().get(name) is False)


def validate(program, config):
    """Envoy's own reading of a configuration: (exit code, what it said)."""
    done = run(program, "--mode", "validate", "-c", config)
    return done.returncode, done.stdout + done.stderr
