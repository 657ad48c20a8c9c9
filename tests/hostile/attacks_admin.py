# SPDX-License-Identifier: Apache-2.0
"""Attacks on the admin port: connections that say nothing, half of it, or too much."""
import struct

from roster import attack
from swarm import CLOSE

HEAD = b"GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\n"


def silent(_peer):
    return
    yield


@attack("33 connections within a moment, held")
def admin_bare_33(swarm, target):
    swarm.add(33, target.http, silent)


@attack("48 connections within a moment, held")
def admin_bare_48(swarm, target):
    swarm.add(48, target.http, silent)


@attack("200 connections within a moment, held")
def admin_bare_200(swarm, target):
    swarm.add(200, target.http, silent)


@attack("bursts of 40 connections which leave and come again every 150 ms")
def admin_waves(swarm, target):
    def wave(_peer):
        yield 0.15
        yield CLOSE
    swarm.add(40, target.http, wave)


@attack("60 connections with half a head each")
def admin_half_head(swarm, target):
    def half(_peer):
        yield HEAD
    swarm.add(60, target.http, half)


@attack("60 connections whose heads come byte by byte")
def admin_trickle(swarm, target):
    def trickle(_peer):
        for byte in struct.iter_unpack("c", HEAD + b"X: " + b"y" * 2000):
            yield byte[0]
            yield 0.05
    swarm.add(60, target.http, trickle)


@attack("32 connections which ask for /metrics all the time and read nothing", receive_bytes=4096)
def admin_pipelined(swarm, target):
    def pipeline(_peer):
        while True:
            yield b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200
    swarm.add(32, target.http, pipeline, reads=False)


@attack("600 connections with 40 questions each, more than there are places, which read nothing",
        receive_bytes=4096)
def admin_crowd(swarm, target):
    def ask(_peer):
        yield b"".join(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path
                       for path in (b"/metrics", b"/status.json", b"/", b"/v2/health/ready")) * 10
    swarm.add(600, target.http, ask, reads=False)


@attack("8 connections which ask for /metrics all the time and read everything")
def admin_requests(swarm, target):
    def ask(_peer):
        while True:
            yield b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
            yield None
    swarm.add(8, target.http, ask)


@attack("connections opened and closed as fast as possible", over=False)
def admin_churn(swarm, target):
    def come(_peer):
        yield CLOSE
    swarm.add(16, target.http, come)


@attack("8 connections of garbage")
def admin_garbage(swarm, target):
    def garbage(_peer):
        while True:
            yield bytes(range(256)) * 256
    swarm.add(8, target.http, garbage)
