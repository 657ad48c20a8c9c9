# SPDX-License-Identifier: Apache-2.0
"""A kube-apiserver under test, with its etcd: on loopback, always ended.

The newest whose source Debian has is 1.20, so for_1_20() says what it does not know yet; the newer
schemas are test_kubernetes.py's.
"""

import copy
import json
import socket
import subprocess
import time

from deployed import run, tool
from voxeld_process import PATIENCE

TOKEN = "a-test"
# {(kind, apiVersion of the tree): the same in 1.20}
OLDER = {
    ("HorizontalPodAutoscaler", "autoscaling/v2"): "autoscaling/v2beta2",
    ("PodDisruptionBudget", "policy/v1"): "policy/v1beta1",
}


def missing():
    """The programs that are not here: deploy/install-deps --kubernetes gets them."""
    return [name for name in ("etcd", "kube-apiserver", "kubectl") if not tool(name)]


def for_1_20(thing):
    """An object as the old server knows it."""
    thing = copy.deepcopy(thing)
    thing["apiVersion"] = OLDER.get((thing["kind"], thing["apiVersion"]), thing["apiVersion"])
    if thing["kind"] == "PodDisruptionBudget":
        del thing["spec"]["unhealthyPodEvictionPolicy"]  # 1.26
    if thing["kind"] == "Deployment":
        probe = thing["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]
        probe["tcpSocket"] = {"port": probe.pop("grpc")["port"]}  # 1.24
    return thing


def free_ports(count):
    """All different: they are held until the last one is known."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


class Server:
    """`with Server(folder) as server:` answers kubectl until the block ends."""

    def __init__(self, folder):
        self.folder = folder
        self.processes = []

    def _start(self, name, *flags):
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes.append(
                subprocess.Popen(
                    [tool(name), *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            )

    def __enter__(self):
        try:
            self._enter()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _enter(self):
        client, peer, port = free_ports(3)
        etcd = f"http://127.0.0.1:{client}"
        peers = f"http://127.0.0.1:{peer}"
        self._start(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
        )
        key, public = self.folder / "sa.key", self.folder / "sa.pub"
        assert run("openssl", "genrsa", "-out", key, "2048").returncode == 0
        assert run("openssl", "rsa", "-in", key, "-pubout", "-out", public).returncode == 0
        (self.folder / "tokens").write_text(f"{TOKEN},admin,1\n")
        self._start(
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--secure-port={port}",
            f"--cert-dir={self.folder / 'certificates'}",
            "--service-cluster-ip-range=10.96.0.0/24",
            "--service-account-issuer=https://127.0.0.1",
            f"--service-account-key-file={public}",
            f"--service-account-signing-key-file={key}",
            f"--token-auth-file={self.folder / 'tokens'}",
        )
        self.address = f"https://127.0.0.1:{port}"
        end = time.monotonic() + PATIENCE
        while self.kubectl("get", "--raw=/readyz").returncode != 0:
            logs = {path.name: path.read_text()[-3000:] for path in self.folder.glob("*.log")}
            assert all(one.poll() is None for one in self.processes), logs
            assert time.monotonic() < end, logs
            time.sleep(0.2)  # sleep: between two questions

    def __exit__(self, *_):
        for one in reversed(self.processes):
            one.kill()
            one.wait()

    def kubectl(self, *words):
        home = self.folder / "home"
        return run(
            tool("kubectl"),
            f"--server={self.address}",
            "--insecure-skip-tls-verify",
            f"--token={TOKEN}",
            f"--cache-dir={home}",
            "--kubeconfig=/dev/null",
            *words,
        )

    def apply(self, objects, namespace):
        """Into a namespace, as deploy/kubernetes says; what kubectl did.  Not --server-side: 1.20
        then asks for what it otherwise fills in itself (a port's protocol)."""
        path = self.folder / "objects.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        return self.kubectl("apply", "-n", namespace, "-f", str(path))
