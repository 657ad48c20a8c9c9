# SPDX-License-Identifier: Apache-2.0
"""Whether the objects of an overlay fit together, and voxeld's settings fit the pod that runs it.

Each check yields sentences about what does not meet; a schema sees one object alone.
"""

import re

from deployed import (
    bytes_of,
    file_of_pod,
    metric_names,
    milliseconds_of,
    settings,
    settings_of_pod,
)

# Beside grace_ms and drain_ms: the workers' end, and the kubelet's own.
STOP_SECONDS = 5
# Host memory of the processes: front and CPU worker; with a GPU its driver and compiler too.
PROCESS_BYTES = {"cpu": 2**29, "gpu": 2**31}
UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
USER = 10001


def of_kind(objects, kind):
    return [one for one in objects if one["kind"] == kind]


def selects(selector, labels):
    return all(labels.get(key) == value for key, value in selector.items())


def deployments(objects):
    return [(one, one["spec"]["template"]) for one in of_kind(objects, "Deployment")]


def ports_of(pod):
    """{name and number: number} of the ports of all containers."""
    out = {}
    for container in pod["containers"]:
        for port in container.get("ports", []):
            out[port["containerPort"]] = out[port["name"]] = port["containerPort"]
    return out


def check_selectors(objects):
    """What selects pods selects those of the Deployment."""
    for deployment, template in deployments(objects):
        labels = template["metadata"]["labels"]
        wanted = [("Deployment", deployment["spec"]["selector"]["matchLabels"])]
        wanted += [
            ("topologySpreadConstraints", one["labelSelector"]["matchLabels"])
            for one in template["spec"].get("topologySpreadConstraints", [])
        ]
        wanted += [("Service", one["spec"]["selector"]) for one in of_kind(objects, "Service")]
        wanted += [
            (one["kind"], one["spec"]["selector"]["matchLabels"])
            for one in of_kind(objects, "PodDisruptionBudget")
        ]
        wanted += [
            (one["kind"], one["spec"]["podSelector"]["matchLabels"])
            for one in of_kind(objects, "NetworkPolicy")
        ]
        for name, selector in wanted:
            if not selects(selector, labels):
                yield f"the selector of {name} does not select the pods"


def check_service_ports(objects):
    for _, template in deployments(objects):
        ports = ports_of(template["spec"])
        for service in of_kind(objects, "Service"):
            for port in service["spec"]["ports"]:
                if ports.get(port["targetPort"]) != port["port"]:
                    yield f"Service {service['metadata']['name']}: no container has {port}"
        for policy in of_kind(objects, "NetworkPolicy"):
            for rule in policy["spec"]["ingress"]:
                for port in rule["ports"]:
                    if port["port"] not in ports:
                        yield f"NetworkPolicy: no container has the port {port['port']!r}"


def check_probes(objects):
    for _, template in deployments(objects):
        for container in template["spec"]["containers"]:
            for name in ("startupProbe", "livenessProbe", "readinessProbe"):
                probe = container.get(name)
                if not probe:
                    yield f"{container['name']} has no {name}"
                    continue
                port = next(probe[key]["port"] for key in ("grpc", "httpGet") if key in probe)
                if port not in ports_of(template["spec"]):
                    yield f"{name}: no container has the port {port!r}"


def check_volumes(objects):
    maps = {one["metadata"]["name"]: one for one in of_kind(objects, "ConfigMap")}
    claims = {one["metadata"]["name"] for one in of_kind(objects, "PersistentVolumeClaim")}
    for _, template in deployments(objects):
        pod = template["spec"]
        names = [one["name"] for one in pod["volumes"]]
        mounted = [m["name"] for c in pod["containers"] for m in c["volumeMounts"]]
        for name in set(names) ^ set(mounted):
            yield f"the volume {name} is not both there and mounted"
        for volume in pod["volumes"]:
            name = volume.get("configMap", {}).get("name")
            if name and name not in maps:
                yield f"there is no ConfigMap {name}"
            name = volume.get("persistentVolumeClaim", {}).get("claimName")
            if name and name not in claims:
                yield f"there is no PersistentVolumeClaim {name}"


def check_accounts(objects):
    accounts = {one["metadata"]["name"]: one for one in of_kind(objects, "ServiceAccount")}
    for _, template in deployments(objects):
        name = template["spec"].get("serviceAccountName")
        if name not in accounts:
            yield f"there is no ServiceAccount {name}"
            continue
        tokens = (accounts[name], template["spec"])
        if any(one.get("automountServiceAccountToken") is not False for one in tokens):
            yield "a token of the ServiceAccount is mounted"


def check_autoscaler(objects):
    targets = {(one["kind"], one["metadata"]["name"]) for one in objects}
    for one in of_kind(objects, "HorizontalPodAutoscaler"):
        target = one["spec"]["scaleTargetRef"]
        if (target["kind"], target["name"]) not in targets:
            yield f"HorizontalPodAutoscaler: there is no {target['kind']} {target['name']}"
        for metric in one["spec"]["metrics"]:
            if metric["pods"]["metric"]["name"] not in metric_names():
                yield f"HorizontalPodAutoscaler: voxeld has no metric {metric['pods']['metric']}"
        if one["spec"]["minReplicas"] < 2:
            yield "HorizontalPodAutoscaler: one replica cannot be drained without a pause"
    if any("replicas" in deployment["spec"] for deployment, _ in deployments(objects)):
        yield "Deployment: replicas are the autoscaler's"


def check_monitor(objects):
    for monitor in of_kind(objects, "ServiceMonitor"):
        selector = monitor["spec"]["selector"]["matchLabels"]
        found = [
            one
            for one in of_kind(objects, "Service")
            if selects(selector, one["metadata"]["labels"])
        ]
        if len(found) != 1:
            yield f"ServiceMonitor: {len(found)} services are selected: every pod is scraped once"
            continue
        ports = {port["name"] for port in found[0]["spec"]["ports"]}
        for endpoint in monitor["spec"]["endpoints"]:
            if endpoint["port"] not in ports:
                yield f"ServiceMonitor: the service has no port {endpoint['port']!r}"
        job = found[0]["metadata"]["labels"].get(monitor["spec"]["jobLabel"])
        if job != "voxeld":
            yield f"ServiceMonitor: the alerts expect the job voxeld, not {job}"


def check_settings(objects):
    """voxeld knows its settings, and listens where the pod says."""
    for _, template in deployments(objects):
        pod = template["spec"]
        try:
            said = settings_of_pod(objects, pod)
        except (KeyError, TypeError) as error:
            yield f"the settings' file is not there: {error!r}"
            continue
        for name in said:
            if name not in settings():
                yield f"voxeld has no setting {name!r}"
        for name in ("grpc", "http"):
            address = f"0.0.0.0:{ports_of(pod)[name]}"
            if address not in said.get(name, "").split(","):
                yield f"voxeld does not listen for {name} on {address}"
        if not {"grace_ms", "drain_ms"} <= set(said):
            yield "grace_ms and drain_ms are not set: the grace period of the pod follows from them"
            continue
        seconds = (milliseconds_of(said["grace_ms"]) + milliseconds_of(said["drain_ms"])) / 1000
        if pod["terminationGracePeriodSeconds"] < seconds + STOP_SECONDS:
            yield f"terminationGracePeriodSeconds: voxeld may take {seconds} s to stop"
        yield from check_kernel_cache(pod, said.get("kernel_cache"))


def check_kernel_cache(pod, folder):
    """The root file system is read-only; what is above the cache is a volume, or in the image."""
    mounts = {one["mountPath"]: one["name"] for one in pod["containers"][0]["volumeMounts"]}
    volumes = {one["name"]: one for one in pod["volumes"]}
    above = folder and folder.rsplit("/", 1)[0]
    if above in mounts and "emptyDir" not in volumes[mounts[above]]:
        yield f"kernel_cache: {above} cannot be written"
    if folder in mounts:
        yield f"kernel_cache: {folder} is a volume, which others may write; expected it inside one"


def memory_bytes(quantity):
    found = re.fullmatch(r"(\d+)(\w\w)", quantity)
    return int(found[1]) * UNITS[found[2]]


def check_resources(objects):
    """The limits are enough for what the settings may take."""
    for _, template in deployments(objects):
        pod = template["spec"]
        resources = pod["containers"][0].get("resources")
        if not resources:
            yield "the container has no resources"
            continue
        limits, said = resources["limits"], settings_of_pod(objects, pod)
        on_cpu = said["device"] == "cpu"
        needed = bytes_of(said["arena_bytes"]) + PROCESS_BYTES["cpu" if on_cpu else "gpu"]
        if on_cpu:
            needed += bytes_of(said["device_bytes"]) + bytes_of(said["cache_bytes"])
            if str(said.get("threads")) != limits["cpu"]:
                yield "threads: expected the limit of cpu, since voxeld counts the node's cores"
        elif not any(re.fullmatch(r"(nvidia|amd)\.com/gpu", name) for name in limits):
            yield "no GPU is asked for"
        if memory_bytes(limits["memory"]) < needed:
            yield f"memory: the settings may take {needed >> 20} Mi, of {limits['memory']}"
        if resources["requests"] != limits:
            yield "resources: requests and limits differ, so the pod is not Guaranteed"


def check_security(objects):
    for _, template in deployments(objects):
        pod = template["spec"]
        outer = pod.get("securityContext", {})
        wanted = {"runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER}
        wanted["seccompProfile"] = {"type": "RuntimeDefault"}
        for key, value in wanted.items():
            if outer.get(key) != value:
                yield f"securityContext.{key}: expected {value}"
        for container in pod["containers"]:
            inner = container.get("securityContext", {})
            wanted = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}
            wanted["capabilities"] = {"drop": ["ALL"]}
            for key, value in wanted.items():
                if inner.get(key) != value:
                    yield f"{container['name']}: securityContext.{key}: expected {value}"


CHECKS = (
    check_selectors,
    check_service_ports,
    check_probes,
    check_volumes,
    check_accounts,
    check_autoscaler,
    check_monitor,
    check_settings,
    check_resources,
    check_security,
)


def problems(objects):
    """What the first check finds that finds anything: those after it build on what it has seen."""
    for check in CHECKS:
        found = list(check(objects))
        if found:
            return found
    return []


def config_text(objects, pod):
    """The text of the file that --config names."""
    path = next(
        one.removeprefix("--config=")
        for one in pod["containers"][0]["args"]
        if one.startswith("--config=")
    )
    return file_of_pod(objects, pod, path)
