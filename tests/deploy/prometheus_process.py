# SPDX-License-Identifier: Apache-2.0
"""A Prometheus under test: started on loopback with a configuration of the tree, always ended."""

import json
import pathlib
import re
import socket
import subprocess
import time
import urllib.parse
import urllib.request

import yaml

PATIENCE = 300
SCRAPE = "1s"
# What discovery in a cluster would say of a pod.
DISCOVERED = {
    "__meta_kubernetes_service_name": "voxeld-pods",
    "__meta_kubernetes_endpoint_port_name": "http",
    "__meta_kubernetes_namespace": "inference",
    "__meta_kubernetes_pod_name": "voxeld-0",
    "__meta_kubernetes_pod_node_name": "node-0",
}


def without_discovery(path, targets, labels):
    """A configuration for a cluster with fixed targets in place of discovery, which Debian's
    Prometheus is built without."""
    said = yaml.safe_load(pathlib.Path(path).read_text())
    for job in said["scrape_configs"]:
        assert job.pop("kubernetes_sd_configs") == [{"role": "endpoints"}]
        job["static_configs"] = [{"targets": targets, "labels": labels}]
    said["rule_files"] = [str(pathlib.Path(path).parent / name) for name in said["rule_files"]]
    return said


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


class Prometheus:
    """`with Prometheus(program, said, folder) as prometheus:` scrapes until the block ends."""

    def __init__(self, program, said, folder):
        self.at = None  # the time of all queries; None = now
        said["global"].update(
            scrape_interval=SCRAPE, scrape_timeout=SCRAPE, evaluation_interval=SCRAPE
        )
        config = folder / "prometheus.yml"
        config.write_text(yaml.safe_dump(said))
        self.log = folder / "prometheus.log"
        self.url = f"http://127.0.0.1:{free_port()}"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    program,
                    f"--config.file={config}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address={self.url.removeprefix('http://')}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def __enter__(self):
        try:
            self.wait_for("Prometheus to be ready", lambda: self.get("/-/ready"))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()

    def wait_for(self, what, condition):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            result = condition()
            if result:
                return result
            time.sleep(0.1)  # sleep: between two questions
        raise AssertionError(f"waited {PATIENCE} s for {what}: {self.log.read_text()[-4000:]}")

    def get(self, path):
        """The body of an answer, or None while nothing answers well."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=PATIENCE) as reply:
                return reply.read().decode()
        except OSError:
            return None

    def ask(self, path, **query):
        """`data` of the API's answer; an error is raised with its sentence."""
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query, doseq=True)}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as reply:
                answer = json.load(reply)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from error
        return answer["data"]

    def query(self, expression):
        """[(labels, value)] of an instant query."""
        at = {} if self.at is None else {"time": self.at}
        rows = self.ask("query", query=expression, **at)["result"]
        return [(row["metric"], float(row["value"][1])) for row in rows]

    def label_values(self, text):
        """What Grafana finds for a variable: label_values(SELECTOR, LABEL)."""
        selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", text).groups()
        return self.ask(f"label/{label}/values", **{"match[]": selector})
