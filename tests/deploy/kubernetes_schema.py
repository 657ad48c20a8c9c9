# SPDX-License-Identifier: Apache-2.0
"""Whether an object is one that Kubernetes takes: types, required keys, no unknown key.

Kubernetes' own kinds have the published schemas of two releases, which deploy/install-deps gets.
Those of the Prometheus operator and of KServe are written here, as far as we use them: a key that
is not here is an unknown key.
"""

import functools
import json
import re

import jsonschema

from deployed import TOOLS

# The oldest and the newest release that the README names.
RELEASES = ("1.29", "1.37")
SCHEMAS = TOOLS / "kubernetes"
DEFINITION = "#/$defs/io.k8s."
META = {"$ref": DEFINITION + "apimachinery.pkg.apis.meta.v1.ObjectMeta"}
CONTAINER = {"$ref": DEFINITION + "api.core.v1.Container"}
RESOURCES = {"$ref": DEFINITION + "api.core.v1.ResourceRequirements"}
SELECTOR = {"$ref": DEFINITION + "apimachinery.pkg.apis.meta.v1.LabelSelector"}
TEXT = {"type": "string", "minLength": 1}
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
DURATION = {"type": "string", "pattern": r"^\d+(ms|s|m|h)$"}
COUNT = {"type": "integer", "minimum": 1}
PROTOCOL = {"enum": ["v1", "v2", "grpc-v1", "grpc-v2"]}


def strict(required="", **properties):
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


def some(items):
    return {"type": "array", "items": items, "minItems": 1}


def kind(api, name, spec):
    return strict(
        "apiVersion kind metadata spec",
        apiVersion={"const": api},
        kind={"const": name},
        metadata=META,
        spec=spec,
    )


ALERT = strict(
    "alert expr labels annotations",
    alert={"type": "string", "pattern": "^[A-Z][A-Za-z]+$"},
    expr=TEXT,
    **{"for": DURATION},
    labels=TEXTS,
    annotations=TEXTS,
)
ENDPOINT = strict("port", port=TEXT, path=TEXT, interval=DURATION, scrapeTimeout=DURATION)
FORMAT = strict("name", name=TEXT, version=TEXT, autoSelect={"type": "boolean"}, priority=COUNT)
MODEL = strict(
    "modelFormat storageUri",
    modelFormat=strict("name", name=TEXT, version=TEXT),
    protocolVersion=PROTOCOL,
    runtime=TEXT,
    storageUri={"type": "string", "pattern": r"^(pvc|s3|gs|hf|oci|https?)://.+"},
    resources=RESOURCES,
)
OTHERS = {
    ("monitoring.coreos.com/v1", "ServiceMonitor"): strict(
        "selector endpoints", jobLabel=TEXT, selector=SELECTOR, endpoints=some(ENDPOINT)
    ),
    ("monitoring.coreos.com/v1", "PrometheusRule"): strict(
        "groups", groups=some(strict("name rules", name=TEXT, rules=some(ALERT)))
    ),
    ("serving.kserve.io/v1alpha1", "ClusterServingRuntime"): strict(
        "supportedModelFormats containers",
        annotations=TEXTS,
        supportedModelFormats=some(FORMAT),
        protocolVersions=some(PROTOCOL),
        containers=some(CONTAINER),
    ),
    ("serving.kserve.io/v1beta1", "InferenceService"): strict(
        "predictor",
        predictor=strict("model", minReplicas=COUNT, maxReplicas=COUNT, model=MODEL),
    ),
}
QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
LABEL = re.compile(r"[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?")
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
HANDLERS = ("grpc", "httpGet", "tcpSocket", "exec")


@functools.cache
def definitions(release):
    return json.loads((SCHEMAS / f"{release}.json").read_text())["$defs"]


@functools.cache
def kinds(release):
    """{(apiVersion, kind): name of its definition}."""
    found = {}
    for name, definition in definitions(release).items():
        for one in definition.get("x-kubernetes-group-version-kind", []):
            api = f"{one['group']}/{one['version']}".lstrip("/")
            found.setdefault((api, one["kind"]), name)
    return found


def schema_of(api, name, release):
    if (api, name) in OTHERS:
        own = kind(api, name, OTHERS[(api, name)])
    elif (api, name) in kinds(release):
        own = {
            "$ref": f"#/$defs/{kinds(release)[(api, name)]}",
            "required": ["apiVersion", "kind", "metadata"],
        }
    else:
        return None
    return {"$defs": definitions(release), **own}


def walk(value, path=()):
    """Every mapping of an object, with the keys that lead to it."""
    if isinstance(value, dict):
        yield path, value
        for key, inner in value.items():
            yield from walk(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from walk(inner, (*path, number))


def quantities(path, value):
    """What has the form of a quantity: the schemas take any text."""
    if path and path[-1] in ("limits", "requests"):
        yield from value.values()
    for key in ("sizeLimit", "averageValue"):
        if key in value:
            yield value[key]


def forms(thing):
    """What the API server refuses, and a schema does not say."""
    name = thing.get("metadata", {}).get("name", "")
    if not NAME.fullmatch(name):
        yield f"metadata.name: expected a DNS label, got {name!r}"
    for path, value in walk(thing):
        where = ".".join(map(str, path))
        for quantity in quantities(path, value):
            if not QUANTITY.fullmatch(str(quantity)):
                yield f"{where}: expected a quantity, got {quantity!r}"
        if path and path[-1] in ("labels", "matchLabels", "nodeSelector"):
            for label in value.values():
                if not (isinstance(label, str) and LABEL.fullmatch(label)):
                    yield f"{where}: expected the value of a label, got {label!r}"
        is_probe = path and str(path[-1]).endswith("Probe")
        if is_probe and sum(handler in value for handler in HANDLERS) != 1:
            yield f"{where}: expected one of {', '.join(HANDLERS)}"


def errors(thing, release):
    """Sentences: what is wrong with an object for a release of Kubernetes."""
    api, name = thing.get("apiVersion"), thing.get("kind")
    schema = schema_of(api, name, release)
    if schema is None:
        return [f"Kubernetes {release} has no kind {name!r} in {api!r}"]
    validator = jsonschema.Draft202012Validator(schema)
    said = [
        f"{'.'.join(map(str, one.absolute_path))}: {one.message[:200]}"
        for one in validator.iter_errors(thing)
    ]
    return [f"{name} for Kubernetes {release}: {one}" for one in [*said, *forms(thing)]]
