# SPDX-License-Identifier: Apache-2.0
"""panels - the table of the dashboard's panels: their queries, and what a reader should know.

ROWS is a list of rows, each a title and its panels.  A panel is a title, a unit, its width in
24ths, a description, and its queries with their legends.  In a query I stands for the instances
that are chosen, M for these and the models, and R for the window of a rate.
"""

I = 'instance=~"$instance"'
M = 'instance=~"$instance",model=~"$model"'
R = "$__rate_interval"
BAD = I + ',code=~"INTERNAL|DATA_LOSS"'


def rate(metric, by, labels=I):
    return f"sum by ({by}) (rate({metric}{{{labels}}}[{R}]))"


def total(metric, labels=I):
    return f"sum(rate({metric}{{{labels}}}[{R}]))"


def quantile(share, metric):
    return f"histogram_quantile({share}, {rate(metric + '_bucket', 'le')})"


def quantiles(metric):
    return [
        (quantile(share, metric), name)
        for share, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
    ]


def mean(metric):
    return f"sum(rate({metric}_sum{{{I}}}[{R}])) / sum(rate({metric}_count{{{I}}}[{R}]))"


def stage(name):
    """Seconds of a stage for each request that succeeded."""
    spent = f"sum(rate(nv_inference_{name}_duration_us{{{M}}}[{R}]))"
    return f"{spent} / sum(rate(nv_inference_request_success{{{M}}}[{R}])) / 1e6"


def gauge(metric, by, labels=I):
    return f"sum by ({by}) ({metric}{{{labels}}})"


def share(part, whole):
    return f"sum by (instance) ({part}{{{I}}}) / sum by (instance) ({whole}{{{I}}})"


STATS = [
    (
        "Ready",
        "none",
        4,
        "Instances that are ready",
        [(f"sum(voxeld_ready{{{I}}})", "")],
    ),
    (
        "Devices up",
        "none",
        4,
        "Workers that have their device open",
        [(f"sum(voxeld_worker_up{{{I}}})", "")],
    ),
    (
        "Requests",
        "reqps",
        4,
        "That ended, with any status",
        [(total("voxeld_requests_total"), "")],
    ),
    (
        "Failures",
        "percentunit",
        4,
        "INTERNAL and DATA_LOSS: never the client's fault",
        [
            (
                f"{total('voxeld_requests_total', BAD)} / {total('voxeld_requests_total')}",
                "",
            )
        ],
    ),
    (
        "Latency, p99",
        "s",
        4,
        "Of requests that succeeded, inside the daemon",
        [(quantile(0.99, "voxeld_request_seconds"), "")],
    ),
    (
        "Queued voxels",
        "short",
        4,
        "Of all sets, as expected; what the autoscaler sees",
        [(f"sum(voxeld_queued_voxels{{{I}}})", "")],
    ),
]
REQUESTS = [
    ("Requests by status", "reqps", 8, "", [(rate("voxeld_requests_total", "code"), "{{code}}")]),
    (
        "Failed requests by cause",
        "reqps",
        8,
        "BACKEND: voxeld or the device; CANCELED: client, deadline; REJECTED: a limit; OTHER: bad",
        [(rate("nv_inference_request_failure", "reason", M), "{{reason}}")],
    ),
    (
        "Refused early",
        "reqps",
        8,
        "Calls before they reach a queue, by reason, and requests that would be late",
        [
            (rate("voxeld_rpc_refused_total", "reason"), "{{reason}}"),
            (total("voxeld_deadline_refusals_total"), "late"),
        ],
    ),
    (
        "Latency",
        "s",
        8,
        "From the arrival of the headers to the answer",
        quantiles("voxeld_request_seconds"),
    ),
    (
        "Where the time goes",
        "s",
        8,
        "Mean of a successful request; the stages of a batch count for each of its requests",
        [
            (stage("queue"), "queue"),
            (stage("compute_input"), "input"),
            (stage("compute_infer"), "geometry and layers"),
            (stage("compute_output"), "output"),
        ],
    ),
    ("Calls by method", "reqps", 8, "", [(rate("voxeld_rpc_calls_total", "method"), "{{method}}")]),
]
QUEUE = [
    (
        "Requests that wait and run",
        "short",
        8,
        "",
        [
            (gauge("voxeld_queued_requests", "instance"), "waiting {{instance}}"),
            (gauge("voxeld_running_requests", "instance"), "running {{instance}}"),
        ],
    ),
    (
        "Voxels that wait",
        "short",
        8,
        "",
        [(gauge("voxeld_queued_voxels", "instance"), "{{instance}}")],
    ),
    ("Time in the queue", "s", 8, "", quantiles("voxeld_queue_seconds")),
    (
        "Batch fill",
        "percentunit",
        6,
        "Voxels of a batch as a share of the model's limit",
        [
            (mean("voxeld_batch_fill_ratio"), "mean"),
            (quantile(0.95, "voxeld_batch_fill_ratio"), "p95"),
        ],
    ),
    (
        "Batch size",
        "short",
        6,
        "",
        [
            (mean("voxeld_batch_requests"), "requests, mean"),
            (quantile(0.95, "voxeld_batch_requests"), "requests, p95"),
        ],
    ),
    ("Voxels of a batch", "short", 6, "", [(mean("voxeld_batch_voxels"), "mean")]),
    (
        "Scheduler",
        "s",
        6,
        "How far predicted batch times are off, and what the IPC channel costs a batch",
        [
            (quantile(0.95, "voxeld_batch_prediction_error_seconds"), "prediction error, p95"),
            (quantile(0.95, "voxeld_border_seconds"), "IPC channel, p95"),
        ],
    ),
]
MODELS = [
    (
        "Requests by model",
        "reqps",
        6,
        "",
        [(rate("nv_inference_request_success", "model, version", M), "{{model}} {{version}}")],
    ),
    (
        "Voxels by model",
        "short",
        6,
        "Voxels a second, of requests",
        [(rate("voxeld_model_voxels_total", "model", M), "{{model}}")],
    ),
    (
        "Work by model",
        "short",
        6,
        "Pairs of all neighbour maps a second: what the convolutions compute",
        [(rate("voxeld_model_pairs_total", "model", M), "{{model}}")],
    ),
    (
        "Voxels of all sets, by model",
        "short",
        6,
        "What the network makes of the requests' voxels, theirs among them",
        [(rate("voxeld_model_set_voxels_total", "model", M), "{{model}}")],
    ),
    (
        "Served",
        "none",
        8,
        "Instances that serve the version; not as on disk: older files of it serve, or none",
        [
            (gauge("voxeld_model_ready", "model, version", M), "{{model}} {{version}}"),
            (
                f"sum by (model, version) (1 - voxeld_model_files_good{{{M}}})",
                "not as on disk: {{model}} {{version}}",
            ),
        ],
    ),
    (
        "Pending requests",
        "short",
        8,
        "Accepted and not yet answered",
        [(gauge("nv_inference_pending_request_count", "model", M), "{{model}}")],
    ),
    (
        "Weights, and the last load",
        "short",
        8,
        "Bytes on each device; seconds of the last load",
        [
            (f"max by (model) (voxeld_model_weights_bytes{{{M}}})", "bytes {{model}}"),
            (f"max by (model) (nv_model_load_duration_secs{{{M}}})", "seconds {{model}}"),
        ],
    ),
]
DEVICES = [
    ("GPU utilisation", "percentunit", 6, "", [(f"nv_gpu_utilization{{{I}}}", "{{gpu_uuid}}")]),
    (
        "GPU memory",
        "bytes",
        6,
        "In use by all processes",
        [
            (f"nv_gpu_memory_used_bytes{{{I}}}", "used {{gpu_uuid}}"),
            (f"nv_gpu_memory_total_bytes{{{I}}}", "of {{gpu_uuid}}"),
        ],
    ),
    (
        "GPU power",
        "watt",
        6,
        "",
        [
            (f"nv_gpu_power_usage{{{I}}}", "{{gpu_uuid}}"),
            (f"nv_gpu_power_limit{{{I}}}", "limit {{gpu_uuid}}"),
            (f"rate(nv_energy_consumption{{{I}}}[{R}])", "from energy {{gpu_uuid}}"),
        ],
    ),
    (
        "Device memory for activations",
        "percentunit",
        6,
        "Largest part of device_bytes that was used at once",
        [
            (
                f"voxeld_device_memory_peak_bytes{{{I}}} / voxeld_device_memory_bytes{{{I}}}",
                "{{instance}} {{worker}} {{device}}",
            )
        ],
    ),
    (
        "Arena",
        "percentunit",
        6,
        "Tensors of requests in flight",
        [(share("voxeld_arena_used_bytes", "voxeld_arena_bytes"), "{{instance}}")],
    ),
    (
        "Resident memory",
        "bytes",
        6,
        "Of the front, with the touched part of the arena",
        [(gauge("process_resident_memory_bytes", "instance"), "{{instance}}")],
    ),
    (
        "Processor time of the front",
        "short",
        6,
        "Cores",
        [(rate("process_cpu_seconds_total", "instance"), "{{instance}}")],
    ),
    (
        "Shared memory of clients",
        "short",
        6,
        "",
        [
            (gauge("voxeld_regions", "kind"), "regions, {{kind}}"),
            (f"sum(voxeld_regions_in_use{{{I}}})", "tensors in use"),
            (rate("voxeld_regions_refused_total", "instance"), "refused a second {{instance}}"),
            (rate("voxeld_regions_broken_total", "instance"), "broken a second {{instance}}"),
        ],
    ),
]
CACHES = [
    (
        "Geometry cache",
        "percentunit",
        6,
        "Part of cache_bytes in use",
        [
            (
                f"voxeld_geometry_cache_used_bytes{{{I}}}"
                f" / voxeld_geometry_cache_limit_bytes{{{I}}}",
                "{{instance}} {{worker}} {{device}}",
            )
        ],
    ),
    (
        "Lookups in the geometry cache",
        "ops",
        6,
        "Each neighbour map is one lookup",
        [
            (total("voxeld_geometry_cache_hits_total"), "found"),
            (total("voxeld_geometry_cache_misses_total"), "built"),
            (total("voxeld_geometry_cache_evictions_total"), "discarded"),
        ],
    ),
    (
        "Requests by geometry",
        "reqps",
        6,
        "All neighbour maps from the cache, or at least one built; coords_ref: known, or not",
        [
            (total("voxeld_model_geometry_hits_total", M), "cached"),
            (total("voxeld_model_geometry_misses_total", M), "built"),
            (rate("voxeld_geometry_refs_total", "result"), "coords_ref {{result}}"),
        ],
    ),
    (
        "Kernels",
        "short",
        6,
        "Since the worker started",
        [
            (gauge("voxeld_kernels_compiled_total", "instance"), "compiled {{instance}}"),
            (gauge("voxeld_kernels_cached_total", "instance"), "from the cache {{instance}}"),
            (gauge("voxeld_kernels_build_seconds_total", "instance"), "seconds {{instance}}"),
        ],
    ),
]
WORKERS = [
    ("Up", "none", 8, "", [(f"voxeld_worker_up{{{I}}}", "{{instance}} {{worker}} {{device}}")]),
    (
        "Restarts and losses in an hour",
        "short",
        8,
        "",
        [
            (
                f"sum by (instance) (increase(voxeld_worker_restarts_total{{{I}}}[1h]))",
                "restarts {{instance}}",
            ),
            (
                f"sum by (instance) (increase(voxeld_worker_hangs_total{{{I}}}[1h]))",
                "hangs {{instance}}",
            ),
            (
                f"sum by (instance) (increase(voxeld_worker_device_lost_total{{{I}}}[1h]))",
                "devices lost {{instance}}",
            ),
            (
                f"sum by (instance) (increase(voxeld_tune_rejected_total{{{I}}}[1h]))",
                "wrong results {{instance}}",
            ),
        ],
    ),
    (
        "Starts of the front in an hour",
        "short",
        8,
        "",
        [(f"changes(process_start_time_seconds{{{I}}}[1h])", "{{instance}}")],
    ),
]
CLIENTS = [
    (
        "Connections, streams, calls",
        "short",
        6,
        "",
        [
            (f"sum(voxeld_connections{{{I}}})", "connections"),
            (f"sum(voxeld_streams{{{I}}})", "streams"),
            (f"sum(voxeld_calls_in_flight{{{I}}})", "calls in flight"),
            (f"sum(voxeld_rpc_bodies_receiving{{{I}}})", "messages coming in"),
        ],
    ),
    (
        "Connections cut, and refused",
        "cps",
        6,
        "The help text of voxeld_connections_cut_total explains the reasons",
        [
            (rate("voxeld_connections_cut_total", "reason"), "{{reason}}"),
            (
                total("voxeld_connections_refused_total"),
                "refused: connections_max",
            ),
            (rate("voxeld_rpc_cut_total", "phase"), "slow client, {{phase}}"),
        ],
    ),
    (
        "Bytes",
        "Bps",
        6,
        "Of messages",
        [
            (total("voxeld_rpc_received_bytes_total"), "received"),
            (total("voxeld_rpc_sent_bytes_total"), "sent"),
        ],
    ),
    (
        "Lines of the log that were dropped",
        "short",
        6,
        "A second",
        [(rate("voxeld_log_lines_dropped_total", "instance"), "{{instance}}")],
    ),
]
TLS_AND_TRACES = [
    (
        "Until certificates expire",
        "s",
        6,
        "Of the certificate, and of the list of revoked ones; 0 = that time has passed",
        [(f"min by (instance, file) (voxeld_tls_expires_seconds{{{I}}})", "{{file}} {{instance}}")],
    ),
    (
        "TLS handshakes",
        "ops",
        6,
        "The help text of voxeld_tls_handshakes_total explains the results",
        [(rate("voxeld_tls_handshakes_total", "result"), "{{result}}")],
    ),
    (
        "TLS files",
        "none",
        6,
        "good: 1 = used as they are now, 0 = older ones apply; how often in an hour they were read",
        [
            (f"min by (instance) (voxeld_tls_files_good{{{I}}})", "good {{instance}}"),
            (f"sum by (result) (increase(voxeld_tls_reloads_total{{{I}}}[1h]))", "{{result}}"),
        ],
    ),
    (
        "Spans",
        "ops",
        6,
        "By what became of them; all but sent are lost",
        [(rate("voxeld_spans_total", "result"), "{{result}}")],
    ),
]
ROWS = [
    ("Now", STATS),
    ("Requests", REQUESTS),
    ("Queue and batches", QUEUE),
    ("Models", MODELS),
    ("Devices and memory", DEVICES),
    ("Caches", CACHES),
    ("Workers", WORKERS),
    ("Clients", CLIENTS),
    ("TLS and traces", TLS_AND_TRACES),
]
