# SPDX-License-Identifier: Apache-2.0
"""deploy/kubernetes: every overlay builds, each object is one that Kubernetes takes, the objects
fit together, and voxeld takes its settings and answers its probes as they want.

What only a cluster can show is not here: scheduling, roll-outs, the autoscaler, policies.
"""

import copy
import json
import os
import re
import signal

import pytest
import yaml

from deployed import (
    DEPLOY,
    KUBERNETES,
    documents,
    metric_names,
    milliseconds_of,
    run,
    settings,
    settings_of_pod,
    tool,
)
import kubelet
from kubernetes_references import config_text, of_kind, problems
from kubernetes_schema import RELEASES, SCHEMAS, errors
from model_files import ConvModel, random_grid
from voxeld import Client
from voxeld_process import PATIENCE, Daemon

OVERLAYS = ("cpu", "nvidia", "amd")
COMPONENTS = sorted(path.parent.name for path in KUBERNETES.glob("components/*/kustomization.yaml"))
# A component that another overlay cannot use.
# The component tls takes the gRPC probe away, which cpu keeps: one of the wrong objects is in it.
UNFIT = {("cpu", "kernels-in-image"), ("cpu", "tls")}
# How long an answer that must not come is waited for.
SHORT = 0.5


def build(folder):
    program = tool("kubectl")
    if not program:
        pytest.skip("SKIPPED deploy_kubernetes: no kubectl (deploy/install-deps gets it)")
    done = run(program, "kustomize", folder)
    # kustomize warns of what it will no longer take.
    assert done.returncode == 0 and not done.stderr, done.stderr
    return documents(done.stdout)


@pytest.fixture(scope="module")
def built():
    """{overlay: its objects}."""
    return {name: build(KUBERNETES / "overlays" / name) for name in OVERLAYS}


@pytest.fixture(scope="module")
def whole(built, tmp_path_factory):
    """{overlay: its objects with every component that fits}."""
    out = {}
    for name in OVERLAYS:
        folder = tmp_path_factory.mktemp(name)
        parts = [one for one in COMPONENTS if (name, one) not in UNFIT]
        above = os.path.relpath(KUBERNETES, folder)
        made = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [f"{above}/overlays/{name}"],
            "components": [f"{above}/components/{one}" for one in parts],
        }
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(made))
        out[name] = build(folder)
    return out


def pod_of(objects):
    return of_kind(objects, "Deployment")[0]["spec"]["template"]["spec"]


def check_all(objects):
    assert SCHEMAS.exists(), "no schemas: deploy/install-deps gets them"
    said = [one for thing in objects for release in RELEASES for one in errors(thing, release)]
    assert not said, "\n".join(said)


# ------- objects -------


@pytest.mark.parametrize("name", OVERLAYS)
def test_overlays_are_what_kubernetes_takes(built, name):
    check_all(built[name])
    assert not problems(built[name])
    kinds = {one["kind"] for one in built[name]}
    assert kinds == {
        "ConfigMap",
        "Deployment",
        "HorizontalPodAutoscaler",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Service",
        "ServiceAccount",
    }


@pytest.mark.parametrize("name", OVERLAYS)
def test_overlays_with_every_component(whole, name):
    check_all(whole[name])
    assert not problems(whole[name])
    kinds = {one["kind"] for one in whole[name]}
    assert {"ServiceMonitor", "PrometheusRule", "PersistentVolumeClaim"} <= kinds
    said = settings_of_pod(whole[name], pod_of(whole[name]))
    assert said["client_shm"] == "unix" and "unix:/run/voxeld/grpc" in said["grpc"].split(",")
    mounts = [one["mountPath"] for one in pod_of(whole[name])["containers"][0]["volumeMounts"]]
    assert "/var/cache/voxeld" not in mounts


def test_kserve(tmp_path):
    objects = build(KUBERNETES / "kserve")
    check_all(objects)
    runtime, service = (
        of_kind(objects, kind)[0] for kind in ("ClusterServingRuntime", "InferenceService")
    )
    model = service["spec"]["predictor"]["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]
    formats = [(one["name"], one["version"]) for one in runtime["spec"]["supportedModelFormats"]]
    assert (model["modelFormat"]["name"], model["modelFormat"]["version"]) in formats
    container = runtime["spec"]["containers"][0]
    said = settings_of_pod(objects, runtime["spec"])
    assert set(said) <= set(settings()) and said["repository"] == "/mnt/models"
    assert said["grpc"] == f"0.0.0.0:{container['ports'][0]['containerPort']}"
    assert said["http"].endswith(":" + runtime["spec"]["annotations"]["prometheus.kserve.io/port"])
    assert said["threads"] == container["resources"]["limits"]["cpu"]
    # The kubelet's own 30 s, for KServe sets no other.
    assert milliseconds_of(said["grace_ms"]) + milliseconds_of(said["drain_ms"]) <= 25000
    flags = [one for one in container["args"][1:] if not one.startswith("--repository=")]
    with start(tmp_path, *flags, "--grace-ms=0") as daemon:
        for name in ("readinessProbe", "livenessProbe"):
            assert kubelet.ask(daemon, container, name, PATIENCE)


@pytest.mark.parametrize("release", RELEASES)
def test_the_files_are_objects_before_they_are_built(release):
    """Without kubectl too."""
    found = [p for p in KUBERNETES.glob("base/*.yaml")] + [
        p for p in KUBERNETES.glob("kserve/*.yaml")
    ]
    found += [p for p in KUBERNETES.glob("components/monitoring/*.yaml")]
    found = [path for path in found if path.name != "kustomization.yaml"]
    assert len(found) >= 8
    for path in found:
        for thing in documents(path.read_text()):
            assert not errors(thing, release), path


def test_the_prometheus_rule_is_the_rules_file():
    done = run(KUBERNETES / "prometheus-rule")
    path = KUBERNETES / "components" / "monitoring" / "prometheus-rule.yaml"
    assert (
        done.returncode == 0 and done.stdout == path.read_text()
    ), "run deploy/kubernetes/prometheus-rule"
    rules = yaml.safe_load((DEPLOY / "prometheus" / "voxeld.rules.yml").read_text())
    assert yaml.safe_load(done.stdout)["spec"] == rules


def test_the_adapter_makes_the_metric_of_the_autoscaler(built):
    (rule,) = yaml.safe_load((KUBERNETES / "prometheus-adapter.yaml").read_text())["rules"]
    assert re.match(r"\w+", rule["seriesQuery"])[0] in metric_names()
    assert set(rule["resources"]["overrides"]) == {"namespace", "pod"}
    for objects in built.values():
        metric = of_kind(objects, "HorizontalPodAutoscaler")[0]["spec"]["metrics"][0]["pods"][
            "metric"
        ]
        assert metric["name"] == rule["name"]["as"]


# ------- each check finds what it is for -------


def at(thing, path):
    """The mapping or list that holds the last key of a path, and that key."""
    *folders, last = path.split("/")
    for key in folders:
        thing = thing[int(key) if isinstance(thing, list) else key]
    return thing, int(last) if isinstance(thing, list) else last


POD = "spec/template/spec"
FIRST = f"{POD}/containers/0"
# (kind, path, value; ... removes), and what must be said about it.
WRONG = [
    (("Deployment", f"{FIRST}/prots", []), "unexpected"),
    (("Deployment", f"{FIRST}/readinessProbe/grcp", {}), "unexpected"),
    (("Deployment", f"{FIRST}/ports/0/containerPort", "x"), "not of type 'integer'"),
    (("Deployment", "spec/selector", ...), "required property"),
    (("Deployment", "apiVersion", "apps/v1beta1"), "has no kind"),
    (("Deployment", f"{FIRST}/resources/limits/memory", "5 GB"), "expected a quantity"),
    (("Deployment", f"{FIRST}/livenessProbe/exec", {"command": ["sh"]}), "expected one of"),
    (("Deployment", "metadata/name", "Voxeld"), "expected a DNS label"),
    (("Service", "spec/ports/0/targetPorts", "grpc"), "unexpected"),
    (("Service", "metadata/labels/x", "a b"), "expected the value of a label"),
    (("HorizontalPodAutoscaler", "spec/metrics/0/pods/target/averageValue", "many"), "quantity"),
    (("PodDisruptionBudget", "spec/minAvailable ", 1), "unexpected"),
    (("PrometheusRule", "spec/groups/0/rules/0/exp", "up"), "unexpected"),
    (("PrometheusRule", "spec/groups/0/rules/0/for", "5 min"), "does not match"),
    (("ServiceMonitor", "spec/endpoints/0/prot", "http"), "unexpected"),
    (
        ("Deployment", "spec/template/metadata/labels/app.kubernetes.io~name", "x"),
        "does not select",
    ),
    (("PodDisruptionBudget", "spec/selector/matchLabels/app", "x"), "PodDisruptionBudget does not"),
    (("Service", "spec/ports/0/targetPort", "grcp"), "no container has"),
    (("NetworkPolicy", "spec/ingress/0/ports/0/port", "grcp"), "no container has the port"),
    (("Deployment", f"{FIRST}/readinessProbe/grpc/port", 9000), "no container has the port 9000"),
    (("Deployment", f"{FIRST}/startupProbe", ...), "has no startupProbe"),
    (("Deployment", f"{POD}/volumes/0/name", "x"), "is not both there and mounted"),
    (("ConfigMap", "metadata/name", "voxeld"), "there is no ConfigMap"),
    (("PersistentVolumeClaim", "metadata/name", "x"), "there is no PersistentVolumeClaim"),
    (("ServiceAccount", "automountServiceAccountToken", True), "a token"),
    (("ServiceAccount", "metadata/name", "x"), "there is no ServiceAccount"),
    (("HorizontalPodAutoscaler", "spec/scaleTargetRef/name", "x"), "there is no Deployment x"),
    (("HorizontalPodAutoscaler", "spec/metrics/0/pods/metric/name", "x"), "voxeld has no metric"),
    (("Deployment", "spec/replicas", 1), "replicas are the autoscaler's"),
    (("ServiceMonitor", "spec/endpoints/0/port", "https"), "no port 'https'"),
    (
        ("ServiceMonitor", "spec/selector/matchLabels/app.kubernetes.io~component", "x"),
        "0 services",
    ),
    (("Deployment", f"{FIRST}/args/1", "--config=/etc/voxeld/x.json"), "is not there"),
    (("Deployment", f"{FIRST}/args/1", "--threats=1"), "voxeld has no setting 'threats'"),
    (("Deployment", f"{FIRST}/args/2", "--grpc=0.0.0.0:9000"), "does not listen for grpc"),
    (("Deployment", f"{POD}/terminationGracePeriodSeconds", 30), "may take 35.0 s to stop"),
    (("Deployment", f"{FIRST}/resources/limits/memory", "3Gi"), "the settings may take"),
    (("Deployment", f"{FIRST}/resources/limits/cpu", "8"), "expected the limit of cpu"),
    (("Deployment", f"{FIRST}/securityContext/readOnlyRootFilesystem", False), "readOnlyRoot"),
    (("Deployment", f"{POD}/securityContext/runAsUser", 0), "securityContext.runAsUser"),
]


@pytest.mark.parametrize("change, sentence", WRONG, ids=[f"{w[0][0]}-{w[0][1]}" for w in WRONG])
def test_wrong_objects_are_found(whole, change, sentence):
    objects = copy.deepcopy(whole["cpu"])
    kind, path, value = change
    thing = of_kind(objects, kind)[0]
    holder, key = at(thing, path)
    key = key.replace("~", "/") if isinstance(key, str) else key
    if value is ...:
        del holder[key]
    else:
        holder[key] = value
    said = [one for release in RELEASES for one in errors(thing, release)]
    said = said or problems(objects)
    assert any(sentence in one for one in said), said


def test_a_gpu_overlay_without_a_gpu_is_found(built):
    objects = copy.deepcopy(built["nvidia"])
    for side in pod_of(objects)["containers"][0]["resources"].values():
        del side["nvidia.com/gpu"]
    assert problems(objects) == ["no GPU is asked for"]


def test_a_cache_that_others_may_write_is_found(built):
    objects = copy.deepcopy(built["nvidia"])
    mounts = pod_of(objects)["containers"][0]["volumeMounts"]
    (mount,) = (one for one in mounts if one["name"] == "kernels")
    mount["mountPath"] += "/kernels"
    (said,) = problems(objects)
    assert "others may write" in said


# ------- the daemon -------


def models(folder):
    """A repository with one small model."""
    repository = folder / "models"
    if not repository.exists():
        ConvModel().write(repository)
    return repository


def start(folder, *flags, **options):
    return Daemon(
        models(folder), folder, *flags, "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", **options
    )


@pytest.mark.parametrize("name", OVERLAYS)
def test_voxeld_takes_the_settings(built, tmp_path, name):
    """The file as it is: flags override only what this machine has not."""
    path = tmp_path / "voxeld.json"
    path.write_text(config_text(built[name], pod_of(built[name])))
    said = json.loads(path.read_text())
    flags = ["--device", "cpu"]
    if "kernel_cache" in said:
        flags += ["--kernel-cache", str(tmp_path / "kernels")]
    with start(tmp_path, "--config", str(path), *flags) as daemon:
        taken = json.loads(re.search(r'\{.*"event":"CONFIG".*\}', daemon.log())[0])
        for key in ("client_settings", "rpc_threads"):
            assert taken[key] == said[key]
    path.write_text(json.dumps({**said, "grace": "5s"}))
    done = run(os.environ["VOXELD"], "serve", f"--config={path}")
    assert done.returncode == 2 and "'grace'" in done.stderr


@pytest.fixture(scope="module")
def container(built):
    return pod_of(built["cpu"])["containers"][0]


def test_probes_of_a_pod_that_serves(container, tmp_path):
    with start(tmp_path) as daemon:
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert kubelet.ask(daemon, container, name, PATIENCE), name


def test_a_model_that_cannot_load_takes_the_pod_out_and_restarts_nothing(container, tmp_path):
    ConvModel().write(models(tmp_path), "broken")
    (models(tmp_path) / "broken" / "1" / "weights.safetensors").write_bytes(b"none")
    with start(tmp_path, wait_ready=False) as daemon:
        daemon.wait_said("MODEL_FAILED")
        daemon.wait_said("MODEL_READY")
        assert not kubelet.ask(daemon, container, "readinessProbe", PATIENCE)
        assert kubelet.ask(daemon, container, "startupProbe", PATIENCE)
        assert kubelet.ask(daemon, container, "livenessProbe", PATIENCE)


def test_a_front_that_hangs_fails_liveness_and_tcp_does_not_notice(container, tmp_path):
    with start(tmp_path) as daemon:
        with daemon.frozen(daemon.process.pid):
            assert kubelet.connects(daemon.http, PATIENCE)
            assert not kubelet.ask(daemon, container, "livenessProbe", SHORT)
            assert not kubelet.ask(daemon, container, "readinessProbe", SHORT)
        assert kubelet.ask(daemon, container, "livenessProbe", PATIENCE)


def test_sigterm_serves_new_clients_while_the_pod_leaves(built, container, tmp_path):
    """Why there is no preStop: the grace time of the ConfigMap does what its sleep would."""
    said = settings_of_pod(built["cpu"], pod_of(built["cpu"]))
    assert (
        milliseconds_of(said["grace_ms"]) >= 1000 * 2 * container["readinessProbe"]["periodSeconds"]
    )
    coords, feats = random_grid(1, 100)
    with start(tmp_path, "--grace-ms", "600s") as daemon:
        workers = daemon.workers()
        daemon.signal(signal.SIGTERM)
        daemon.wait_for(
            "readiness to fail",
            lambda: not kubelet.ask(daemon, container, "readinessProbe", PATIENCE),
        )
        assert kubelet.ask(daemon, container, "livenessProbe", PATIENCE)
        for _ in range(20):
            with Client(daemon.grpc) as client:
                assert client.infer("conv", coords, feats, timeout=PATIENCE)["out"].shape == (
                    100,
                    3,
                )
        assert daemon.workers() == workers
        # A second signal ends the grace time; leaving the block expects the exit code 0.


def test_kernels_go_into_an_empty_volume(built, tmp_path):
    """An emptyDir belongs to root and is everybody's; the cache inside must be voxeld's alone."""
    folder = tmp_path / "volume"
    folder.mkdir()
    folder.chmod(0o777)
    model = ConvModel()
    model.network["warmup"] = [10]
    model.write(tmp_path / "models")
    name = settings_of_pod(built["nvidia"], pod_of(built["nvidia"]))["kernel_cache"].rsplit("/", 1)[
        1
    ]
    flags = ["--device", "fake:0", "--device-bytes", "256M", "--kernel-cache", str(folder / name)]
    with start(tmp_path, *flags):
        pass
    assert (folder / name).stat().st_mode & 0o777 == 0o700
    assert list((folder / name).iterdir())
