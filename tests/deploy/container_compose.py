# SPDX-License-Identifier: Apache-2.0
"""compose.yaml brought up for real: the image that the container test has built, and a Prometheus.

Debian has no Grafana and no registry is asked, so that service is not started; the files that it
would read are held against deploy/grafana and the other services.
"""

import json
import os
import shutil
import subprocess
import time
import urllib.parse
import urllib.request

import yaml

from container_rig import (BASE, HEALTHY_SECONDS, TREE, WORK, Failed, expect, free_address, run,
                           say)

PROMETHEUS = "localhost/standin/prometheus:debian"
PROJECT = "voxeld-test"
FILE = TREE / "deploy" / "compose.yaml"
GRAFANA = TREE / "deploy" / "grafana"
SERVICES = {"voxeld", "voxeld-cuda", "voxeld-rocm", "prometheus", "grafana"}
PROFILES = ("cuda", "rocm", "watch")


def compose_tool():
    """The words of a compose command that works here, or None."""
    for tool in (["docker-compose"], ["docker", "compose"]):
        if shutil.which(tool[0]) and run(*tool, "version", check=False).returncode == 0:
            return tool
    return None


def check_file(tool):
    """As a compose tool reads it; docker-compose 1 lists profiles always."""
    command = [*tool, "-f", FILE, *[f"--profile={name}" for name in PROFILES], "config"]
    run(*command)
    named = set(run(*command, "--services").stdout.split())
    expect(named == SERVICES, f"compose names {sorted(named)}")


def check_grafana():
    """What Grafana would read: files that are there, at the paths that name them."""
    service = yaml.safe_load(FILE.read_text())["services"]["grafana"]
    mounts = dict(one.split(":")[:2] for one in service["volumes"])
    inside = {target: (FILE.parent / source).resolve() for source, target in mounts.items()}
    for path in inside.values():
        expect(path.exists(), f"{path} is mounted and not there")
    provisioning = inside["/etc/grafana/provisioning"]
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())[
        "datasources"
    ]
    expect(source["url"] == "http://prometheus:9090", f"Grafana asks {source['url']}")
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "voxeld.yaml").read_text())[
        "providers"
    ]
    home = service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    expect(home.rsplit("/", 1)[0] == provider["options"]["path"], f"the dashboard is not at {home}")
    dashboard = json.loads(inside[home].read_text())
    kinds = {one["query"] for one in dashboard["templating"]["list"] if one["type"] == "datasource"}
    expect(kinds == {source["type"]}, f"the dashboard wants {kinds}")


def program():
    """Prometheus, as deploy/install-deps gets it, or None."""
    ours = TREE / "build" / "tools" / "prometheus"
    return str(ours) if ours.exists() else shutil.which("prometheus")


def make_prometheus(path):
    """An image that compose takes for Prometheus' own: its entry point, its user, its folder."""
    folder = WORK / "prometheus"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy2(path, folder / "prometheus")
    (folder / "Dockerfile").write_text(
        f"FROM {BASE}\nCOPY prometheus /bin/prometheus\n"
        "RUN mkdir /prometheus && chown 65534:65534 /prometheus\nUSER 65534\n"
        'WORKDIR /prometheus\nVOLUME /prometheus\nENTRYPOINT ["/bin/prometheus"]\n'
    )
    run("buildah", "bud", "--pull-never", "-t", PROMETHEUS, folder)


class Compose:
    """`with Compose(tool) as compose:` has the services up until the block ends."""

    def __init__(self, tool):
        self.grpc, self.http, self.prometheus = free_address(), free_address(), free_address()
        self.tool = [*tool, "-p", PROJECT, "-f", FILE]
        self.socket = WORK / "tmp" / "podman.sock"
        # docker-compose speaks to an engine; podman's service is one.
        self.engine = subprocess.Popen(
            ["podman", "system", "service", "--time", "0", f"unix://{self.socket}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.environ.update(
            DOCKER_HOST=f"unix://{self.socket}",
            VOXELD_GRPC=self.grpc,
            VOXELD_HTTP=self.http,
            VOXELD_PROMETHEUS=PROMETHEUS,
            VOXELD_PROMETHEUS_PORT=self.prometheus.rsplit(":", 1)[1],
        )

    def __enter__(self):
        try:
            self.wait_for("podman's service", self.socket.exists)
            run(*self.tool, "--profile", "watch", "up", "-d", "--no-build", "voxeld", "prometheus")
        except BaseException:
            self.__exit__(Failed)
            raise
        return self

    def __exit__(self, kind, *_):
        if kind:
            print(run(*self.tool, "logs", "--no-color", check=False).stdout[-6000:])
        run(*self.tool, "--profile", "watch", "down", "--volumes", "--timeout", "40", check=False)
        self.engine.terminate()
        self.engine.wait()

    def wait_for(self, what, condition):
        end = time.monotonic() + HEALTHY_SECONDS
        while not condition():
            expect(self.engine.poll() is None, "podman's service has ended")
            expect(time.monotonic() < end, f"waited {HEALTHY_SECONDS} s for {what}")
            time.sleep(0.1)  # sleep: between two looks

    def ask(self, path, **query):
        """`data` of Prometheus' answer, or None while it has none."""
        url = f"http://{self.prometheus}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=60) as reply:
                return json.load(reply)["data"]
        except OSError:
            return None

    def value(self, expression):
        """The first value of an instant query, or None."""
        rows = (self.ask("query", query=expression) or {}).get("result")
        return float(rows[0]["value"][1]) if rows else None


def check_up(tool, path, check_answers):
    """check_answers(grpc, http) sends requests and returns how many."""
    make_prometheus(path)
    with Compose(tool) as compose:
        compose.wait_for("voxeld to be ready", lambda: ready(compose.http))
        say("compose: voxeld is ready")
        count = check_answers(compose.grpc)
        success = 'sum(nv_inference_request_success{job="voxeld",instance="voxeld"})'
        compose.wait_for("its requests in Prometheus", lambda: compose.value(success) == count)
        say(f"compose: Prometheus scraped voxeld by its name and counts {count} requests")
        rules = compose.ask("rules")["groups"]
        alerts = {rule["name"] for group in rules for rule in group["rules"]}
        expect("VoxeldDown" in alerts, f"Prometheus has the alerts {sorted(alerts)}")
        targets = compose.ask("targets")["activeTargets"]
        expect([one["health"] for one in targets] == ["up"], f"Prometheus has targets {targets}")


def ready(http):
    try:
        with urllib.request.urlopen(f"http://{http}/v2/health/ready", timeout=60) as answer:
            return answer.status == 200
    except OSError:
        return False


def check(check_answers):
    tool = compose_tool()
    check_grafana()
    if not tool:
        print("SKIPPED: compose.yaml not checked: no docker-compose and no docker compose here")
        return
    check_file(tool)
    say("compose.yaml is valid")
    path = program()
    if not path:
        print("SKIPPED: compose.yaml not brought up: no prometheus (deploy/install-deps gets it)")
        return
    check_up(tool, path, check_answers)
