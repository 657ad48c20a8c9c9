# SPDX-License-Identifier: Apache-2.0
"""Attacks on TLS itself: handshakes that are half, slow, wrong or many, and records of a byte."""
import ssl

import h2
from roster import attack
from swarm import CLOSE, SECURE


def hello():
    """The bytes of a ClientHello."""
    outgoing = ssl.MemoryBIO()
    one = SECURE.wrap_bio(ssl.MemoryBIO(), outgoing)
    try:
        one.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def bare(target):
    """The same port, without TLS by the swarm."""
    return target.grpc.removeprefix("tls:")


@attack("2,000 connections that say half a ClientHello", seconds=3)
def hello_half(swarm, target):
    half = hello()[:60]

    def say(_peer):
        yield half
    swarm.add(2000, bare(target), say)


@attack("300 connections that say a ClientHello byte by byte", seconds=3)
def hello_slow(swarm, target):
    whole = hello()

    def say(_peer):
        for at in range(len(whole)):
            yield whole[at:at + 1]
            yield 0.02
    swarm.add(300, bare(target), say)


@attack("2,000 connections that say a ClientHello and nothing more", seconds=3)
def hello_only(swarm, target):
    whole = hello()

    def say(_peer):
        yield whole
    swarm.add(2000, bare(target), say)


@attack("ClientHellos as fast as possible, each on a connection that leaves at once", seconds=3)
def hello_churn(swarm, target):
    whole = hello()

    def say(_peer):
        yield whole
        yield None
        yield CLOSE
    swarm.add(64, bare(target), say)


@attack("the same on 400 connections of 200 addresses", seconds=4)
def hello_apart(swarm, target):
    whole = hello()

    def say(_peer):
        yield whole
        yield None
        yield CLOSE
    swarm.add(400, bare(target), say, sources=200)


@attack("a ClientHello, then bytes that are no TLS, or records that are too long", seconds=3)
def hello_garbage(swarm, target):
    whole = hello()
    then = [bytes(1000), b"\x16\x03\x03\xff\xff" + bytes(70000),
            b"\x15\x03\x03\x00\x02\x01\x64",
            b"\x17\x03\x03\x40\x00" + bytes(16384), b"\x14\x03\x03\x00\x01\x01" * 1000, whole]

    def say(peer):
        yield whole
        yield None
        yield then[peer.number % len(then)]
    swarm.add(24, bare(target), say)


@attack("connections that begin as neither TLS nor HTTP/2 do, or as HTTP/2 does", seconds=2)
def not_tls(swarm, target):
    first = [b"GET / HTTP/1.1\r\n\r\n", h2.opening(), b"\x16\x03\x01\xff\xff", b"\x80\x2e\x01\x03",
             b"\x16\x03\x01\x00\x00", b"\x16\x03\x01\x02\x00\x02" + bytes(600)]

    def say(peer):
        yield first[peer.number % len(first)]
    swarm.add(24, bare(target), say)


@attack("whole handshakes as fast as possible, and nothing after them", seconds=3)
def handshakes(swarm, target):
    def say(_peer):
        yield CLOSE
    swarm.add(32, target.grpc, say)


@attack("1,200 connections that shake hands and say nothing more", seconds=4)
def handshakes_silent(swarm, target):
    def say(_peer):
        return
        yield
    swarm.add(1200, target.grpc, say)


@attack("frames whose every byte is a record of its own", over=True, seconds=3)
def records_small(swarm, target):
    def say(_peer):
        yield h2.opening()
        while True:
            for byte in h2.window(0, 1) * 20:
                yield bytes([byte])
    swarm.add(4, target.grpc, say)


@attack("an endless message in records of a byte", over=True, seconds=3)
def records_message(swarm, target):
    def say(_peer):
        yield h2.opening() + h2.headers(1, h2.call_block(h2.INFER)) \
            + h2.frame(h2.DATA, 0, 1, bytes(16384))[:9]
        yield h2.message(b"", 1 << 20)
        while True:
            yield b"x"
    swarm.add(4, target.grpc, say)
