/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/rpc_private.h"

#include "engine/base/process/clock.h"
#include "engine/base/process/thread.h"

/* So long an answer may lie in the arena, while others lack room, when its client reads less than
 * is due (vx_rpc_reading). */
#define HOARD_NS (5 * VX_NS_PER_S)
/* So long after somebody found no room for a tensor, room is wanted. */
#define LACK_NS (3 * VX_NS_PER_S)
/* A call that is ended keeps its record and its answer until gRPC has written what it had
 * given to the socket.  A client that has not read that by then reads nothing. */
#define CUT_NS (10 * VX_NS_PER_S)

void vx_rpc_wire_set(struct vx_rpc_record *record, enum vx_rpc_wire wire)
{
    atomic_store_explicit(&record->wire_since_ns, vx_clock_ns(), memory_order_relaxed);
    atomic_store_explicit(&record->wire, (int)wire, memory_order_release);
}

/* Whether the client has read less than is due for HOARD_NS.  By what it reads, not by whether it
 * has read all: 40 MB at 50 Mbit/s take 6.4 s.  gRPC does not tell how much of which answer has
 * gone, so all that the connection reads counts; send_ns_max ends what it leaves. */
static bool slow_reads(struct vx_rpc_record *record, i64 since_ns, i64 now_ns)
{
    struct vx_rpc_reading now = vx_rpc_govern_reading(vx_rpc_place_of(record));
    bool first =
        record->read_since_ns != since_ns; /* what is noted is of another answer */
    if (first || now.read >= record->read + now.due) {
        record->read_since_ns = since_ns;
        record->read_ns = now_ns;
        record->read = now.read;
    }
    return now_ns - record->read_ns > HOARD_NS;
}

/* A stream that is being read is VX_RPC_IDLE, whether part of a message has come or
 * nothing: gRPC does not tell.  So receive_ns_max does not apply to streams; rpc.h says
 * what they may hold.
 *
 * The caller holds a reference, so that the record stays the same call; gRPC takes a
 * cancellation at any time. */
static void slow_cut(struct vx_rpc_record *record, bool lacks, i64 now_ns)
{
    struct vx_rpc *rpc = record->rpc;
    int wire = atomic_load_explicit(&record->wire, memory_order_acquire);
    i64 since = atomic_load_explicit(&record->wire_since_ns, memory_order_relaxed);
    bool receives = wire == VX_RPC_RECEIVING;
    if (wire == VX_RPC_CUT) {
        if (now_ns - since > CUT_NS) vx_rpc_govern_unread(vx_rpc_place_of(record));
        return;
    }
    i64 most = receives ? rpc->options.receive_ns_max : rpc->options.send_ns_max;
    if (wire == VX_RPC_IDLE) return;
    bool late = most && now_ns - since > most;
    bool hoards = wire == VX_RPC_SENDING && slow_reads(record, since, now_ns) && !late &&
                  vx_rpc_govern_hoards(vx_rpc_place_of(record), lacks);
    if (hoards) most = HOARD_NS;
    if (!late && !hoards) return;
    struct vx_why why;
    vx_why_set(&why,
               receives ? "the request's message took longer than %lld ms to arrive"
               : hoards
                   ? "the client did not read its answer for %lld ms, or too little of "
                     "it, while others waited for the memory that the answer occupies"
                   : "the client did not read its answer for %lld ms",
               (long long)(most / VX_NS_PER_MS));
    atomic_fetch_add_explicit(receives ? &rpc->cut_receiving : &rpc->cut_sending, 1,
                              memory_order_relaxed);
    atomic_store_explicit(&record->wire_since_ns, now_ns, memory_order_relaxed);
    atomic_compare_exchange_strong(&record->wire, &wire,
                                   receives ? VX_RPC_IDLE : VX_RPC_CUT);
    vx_rpc_refusal_tell(record, VX_CODE_DEADLINE_EXCEEDED,
                        receives ? "" : record->call.request.model, why.text);
    grpc_call_cancel_with_status(record->grpc, GRPC_STATUS_DEADLINE_EXCEEDED, why.text,
                                 NULL);
}

/* Whether somebody found no room for a tensor lately. */
static bool room_lacks(struct vx_rpc *rpc, i64 now_ns)
{
    const struct vx_slots *slots = rpc->options.slots;
    const u64 lacked = slots->lacked ? slots->lacked(slots->context) : 0;
    if (lacked != rpc->lacked) rpc->lacked_ns = now_ns;
    rpc->lacked = lacked;
    return rpc->lacked_ns && now_ns - rpc->lacked_ns < LACK_NS;
}

void vx_rpc_cut_slow(struct vx_rpc *rpc, i64 now_ns)
{
    VX_ON(LOOP);
    const bool lacks = room_lacks(rpc, now_ns);
    for (i32 i = 0; i < rpc->records_count; i++) {
        struct vx_rpc_record *record = &rpc->records[i];
        if (atomic_load_explicit(&record->wire, memory_order_relaxed) == VX_RPC_IDLE)
            continue;
        if (!vx_rpc_record_hold(record)) continue;
        slow_cut(record, lacks, now_ns);
        vx_rpc_record_unref(record);
    }
}
