# SPDX-License-Identifier: Apache-2.0
"""Attacks with connections themselves: many, silent, half begun, short."""
import h2
from roster import ATTACKS, attack
from swarm import CLOSE

MANY = 10_000


def silent(_peer):
    return
    yield


@attack("10,000 connections that say nothing", seconds=4)
def half_open(swarm, target):
    swarm.add(MANY, target.grpc, silent)


@attack("10,000 connections that say half a preface", seconds=4)
def half_preface(swarm, target):
    def half(_peer):
        yield h2.PREFACE[:12]
    swarm.add(MANY, target.grpc, half)


@attack("10,000 connections that say the preface and nothing more", seconds=4)
def preface_only(swarm, target):
    def whole(_peer):
        yield h2.opening()
    swarm.add(MANY, target.grpc, whole)


@attack("connections opened and closed as fast as possible", seconds=3)
def churn(swarm, target):
    def come(_peer):
        yield CLOSE
    swarm.add(32, target.grpc, come)


@attack("connections that say the preface and leave, as fast as possible", seconds=3)
def churn_preface(swarm, target):
    def come(_peer):
        yield h2.opening()
        yield CLOSE
    swarm.add(32, target.grpc, come)


@attack("connections that speak TLS, HTTP/1.1 or nonsense, one after another", seconds=3)
def other_protocols(swarm, target):
    first = [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
             b"GET / HTTP/1.1\r\nHost: hostile\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r!",
             bytes(1000), h2.PREFACE + b"GET / HTTP/1.1\r\n\r\n"]

    def come(peer):
        yield first[peer.number % len(first)]
    swarm.add(20, target.grpc, come)


@attack("connections that begin a call and leave, as fast as possible", seconds=3)
def churn_calls(swarm, target):
    begin = h2.opening() + h2.headers(1, h2.call_block(h2.INFER)) \
        + h2.data(1, h2.message(b"x" * 100, 1000))

    def come(_peer):
        yield begin
        yield None
        yield CLOSE
    swarm.add(32, target.grpc, come)


@attack("frames of several kinds, calls and resets, and silent connections, all at once", seconds=5)
def mix_frames(swarm, target):
    for name in ("ping_deaf", "settings", "continuation", "data_empty", "window_call", "priority"):
        ATTACKS[name].run(swarm, target)


@attack("calls begun, left, trickled, reset and not read, all at once", seconds=5, arena=True)
def mix_calls(swarm, target):
    for name in ("headers_only", "headers_only_300", "trickle_300", "rapid_reset", "zero_window",
                 "stream_halves"):
        ATTACKS[name].run(swarm, target)


@attack("connections, frames, calls and the admin port, all at once", seconds=6, arena=True)
def mix_all(swarm, target):
    for name in ("admin_half_head", "admin_waves", "admin_pipelined", "churn_calls", "mix_frames",
                 "mix_calls", "slow_readers"):
        ATTACKS[name].run(swarm, target)
