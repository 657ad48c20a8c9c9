# SPDX-License-Identifier: Apache-2.0
"""What every load balancer must do: a geometry stays on one replica, and no call fails while a
replica leaves.

`proxy` has the address `grpc`, and `tls`, None for plain text; wait_up(name) and wait_down(name)
wait until it sees the replica so.
"""

import functools
import signal
import time

from balancer_load import MODEL, Load, Raw, answered, homes, misses, opened
from voxeld import Client
from voxeld_process import PATIENCE


def stay(proxy, replicas, grids):
    before = sum(misses(one) for one in replicas)
    first = homes(proxy, replicas, grids)
    assert {first.count("a"), first.count("b")} <= set(range(8, 33)), first
    # Three clients sent each grid: the neighbour maps were built once.
    assert sum(misses(one) for one in replicas) - before == len(grids)
    assert homes(proxy, replicas, grids[::-1])[::-1] == first
    assert sum(misses(one) for one in replicas) - before == len(grids)


def reach_both(proxy, replicas, grids):
    """Calls without the header."""
    before = [answered(one) for one in replicas]
    with opened(proxy, [Raw]) as (client,):
        for _ in grids:
            client.infer(*grids[0])
    more = [answered(one) - old for one, old in zip(replicas, before)]
    assert sum(more) == len(grids) and min(more) > 0, more
    with Client(proxy.grpc, tls=proxy.tls) as client:
        assert client.server_ready() and client.model_ready(MODEL)
        assert client.model_metadata(MODEL).name == MODEL


def leave_and_return(proxy, replicas, grids, how, count=30):
    """Each replica in turn, under load.  how(proxy, replica, busy) makes three steps: it leaves, it
    has ended, it is back.  Between them each client has `count` answers.  busy() returns once calls
    wait for a replica that is stopped."""
    first = homes(proxy, replicas, grids)
    for leaving, other in (replicas, replicas[::-1]):
        with Load(proxy, grids) as load:
            load.wait_progress(count)
            kept = grids[first.index(other.name)]
            steps = how(proxy, leaving, functools.partial(load.wait_stuck, proxy, kept))
            next(steps)
            load.wait_progress(count)
            next(steps)
            before = answered(other)
            load.wait_progress(count)
            # One answer of each client may have been counted before, and have arrived since.
            assert answered(other) - before >= (count - 1) * len(load.threads)
            with load.slowly():
                leaving.start()
                next(steps, None)
                proxy.wait_up(leaving.name)
            load.wait_progress(count)
        assert not load.errors, load.errors
    wait_homes(proxy, replicas, grids, first)
    assert homes(proxy, replicas, grids) == first


def wait_homes(proxy, replicas, grids, wanted):
    """A thread of the balancer may learn later than its admin page that a replica is back."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            if homes(proxy, replicas, grids) == wanted:
                return
        except AssertionError:  # calls of one geometry were answered by two replicas
            pass
        assert time.monotonic() < end, "geometries did not come back"


def terminate(proxy, replica, _busy):
    """It sees NOT_SERVING while the replica still answers; the second signal ends the grace."""
    replica.terminate()
    proxy.wait_down(replica.name)
    assert replica.daemon.process.poll() is None
    yield
    replica.signal(signal.SIGTERM)
    assert replica.end() == 0
    yield


def kill(proxy, replica, busy):
    """While calls wait for it, and no answer is on its way: nobody can send such a call again
    (deploy/haproxy/README.md)."""
    replica.signal(signal.SIGSTOP)
    busy()
    replica.signal(signal.SIGKILL)
    replica.end()
    yield
    proxy.wait_down(replica.name)
    yield
