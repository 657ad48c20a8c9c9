#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes spans.bin: what voxeld must send for the records of test_span_pack.c, by OpenTelemetry's
own messages and Python's encoder.

    build/venv/bin/python tests/golden/spans.py tests/golden/spans.bin

Fields of one number go in order, so the bytes are the same from every encoder.
"""
import pathlib
import sys

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

OFFSET = 1_700_000_000_000_000_000
STAGES = ("receive", "queue", "input", "geometry", "compute", "answer")
SAMPLED, KNOWN, REMOTE = 0x001, 0x100, 0x200
MASK = 2**64 - 1


def stage_id(request, stage):
    """SplitMix64 of the request's id, in the machine's byte order."""
    z = (int.from_bytes(request, "little") + (stage + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return (z ^ (z >> 31)).to_bytes(8, "little")


def add(attributes, key, value):
    pair = attributes.add(key=key)
    field = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value"}
    setattr(pair.value, field[type(value)], value)


def request(spans, trace, span, parent, state, times, status, attributes):
    one = spans.add(trace_id=bytes.fromhex(trace), span_id=bytes.fromhex(span), trace_state=state,
                    parent_span_id=bytes.fromhex(parent), kind=Span.SPAN_KIND_SERVER,
                    name="inference.GRPCInferenceService/ModelInfer",
                    start_time_unix_nano=OFFSET + times[0], end_time_unix_nano=OFFSET + times[-1],
                    flags=SAMPLED | KNOWN | (REMOTE if parent else 0), status=status)
    for key, value in attributes.items():
        add(one.attributes, key, value)
    for stage, (begin, end) in enumerate(zip(times, times[1:])):
        spans.add(trace_id=one.trace_id, span_id=stage_id(one.span_id, stage), trace_state=state,
                  parent_span_id=one.span_id, kind=Span.SPAN_KIND_INTERNAL, name=STAGES[stage],
                  start_time_unix_nano=OFFSET + begin, end_time_unix_nano=OFFSET + end,
                  flags=SAMPLED | KNOWN)


def message():
    out = ExportTraceServiceRequest()
    all_spans = out.resource_spans.add()
    add(all_spans.resource.attributes, "service.name", "voxeld")
    add(all_spans.resource.attributes, "place", "a,b ü")
    scope = all_spans.scope_spans.add()
    scope.scope.name = "voxeld"
    rpc = {"rpc.system": "grpc", "rpc.service": "inference.GRPCInferenceService",
           "rpc.method": "ModelInfer"}
    request(scope.spans, "4bf92f3577b34da6a3ce929d0e0e4736", "b7ad6b7169203331",
            "00f067aa0ba902b7", "a=1,b=2", (1000, 2000, 3000, 4500, 5000, 9000, 9500), None,
            {**rpc, "rpc.grpc.status_code": 0, "voxeld.model": "normals", "voxeld.version": 3,
             "voxeld.request.id": "scan-\u00e9", "voxeld.voxels": 848,
             "voxeld.request.bytes": 17000, "voxeld.answer.bytes": 10176,
             "voxeld.device": "cuda:1", "voxeld.worker": 1, "voxeld.geometry.hit": True,
             "voxeld.pairs": 12345, "voxeld.batch.requests": 4, "voxeld.batch.voxels": 3000,
             "voxeld.batch.fill": 0.375})
    # The second of its times is before the first, as no clock should have it.
    why = "the server stops"
    request(scope.spans, "0af7651916cd43dd8448eb211c80319c", "00000000000000ff", "", "",
            (7000, 7000, 8000), Status(code=Status.STATUS_CODE_ERROR, message=why),
            {**rpc, "rpc.grpc.status_code": 14, "error.type": "UNAVAILABLE", "voxeld.error": why,
             "voxeld.model": "normals", "voxeld.voxels": 0, "voxeld.request.bytes": 5,
             "voxeld.answer.bytes": 0})
    return out


if __name__ == "__main__":
    pathlib.Path(sys.argv[1]).write_bytes(message().SerializeToString(deterministic=True))
