/* Any bytes as the frames of a client and as those that were sent to it, through the meter: its
 * sums are those of its rows, and the division of the bytes into reads changes nothing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/check.h"
#include "server/govern/h2_meter.h"

#define STREAMS     8
#define MESSAGE_MAX (2 << 20)

int LLVMFuzzerTestOneInput(const u8 *data, size_t bytes);

/* The last `sent` bytes are those that were sent to the client at the end, after half of the
 * messages that wait were taken. */
static struct vx_h2_meter feed(const u8 *data, size_t bytes, size_t sent, size_t piece)
{
    struct vx_h2_stream rows[STREAMS];
    struct vx_h2_meter meter;
    vx_h2_meter_init(&meter, rows, STREAMS, MESSAGE_MAX);
    bytes -= sent;
    for (size_t at = 0; at < bytes; at += piece)
        vx_h2_meter_walk(&meter, data + at, bytes - at < piece ? bytes - at : piece);
    for (i32 i = (meter.waiting + 1) / 2; sent && i > 0; i--) vx_h2_meter_taken(&meter);
    for (size_t at = 0; at < sent; at += piece)
        vx_h2_meter_sent(&meter, data + bytes + at,
                         sent - at < piece ? sent - at : piece);
    i64 came = 0, held = 0, announced = 0, waiting_came = 0, waiting_held = 0, whole = 0;
    i32 unfinished = 0, silent = 0, heavy = 0, large = 0, waiting = 0;
    for (i32 i = 0; i < meter.streams_count; i++) {
        came += rows[i].got;
        held += rows[i].held;
        waiting += rows[i].waiting;
        waiting_came += rows[i].waiting_came;
        waiting_held += rows[i].waiting_held;
        large +=
            rows[i].have == VX_H2_PREFIX_BYTES && rows[i].length >= VX_H2_MESSAGE_LONG;
        VX_ASSERT(rows[i].waiting >= 0 && rows[i].waiting_held >= 0);
        VX_ASSERT(!rows[i].ended || (!rows[i].answered && !rows[i].got));
        whole += rows[i].whole;
        announced += rows[i].have == VX_H2_PREFIX_BYTES ? rows[i].length : 0;
        unfinished += rows[i].got > 0;
        silent += !rows[i].spoke;
        heavy += rows[i].heavy;
        if (i) VX_ASSERT(rows[i - 1].id < rows[i].id);
    }
    VX_ASSERT(meter.streams_count <= STREAMS);
    VX_ASSERT(meter.whole == whole + meter.orphaned && meter.orphans >= 0);
    VX_ASSERT(!meter.barred && !meter.withheld);
    VX_ASSERT(meter.came == came);
    VX_ASSERT(meter.held == held);
    VX_ASSERT(meter.large == large);
    VX_ASSERT(meter.waiting == waiting);
    VX_ASSERT(meter.waiting_came == waiting_came);
    VX_ASSERT(meter.waiting_held == waiting_held);
    VX_ASSERT(meter.announced == announced);
    VX_ASSERT(meter.unfinished == unfinished);
    VX_ASSERT(meter.silent == silent);
    VX_ASSERT(meter.heavy == heavy);
    VX_ASSERT(meter.fault ||
              vx_h2_meter_left(&meter) <= MESSAGE_MAX + VX_H2_MESSAGE_EXCESS);
    return meter;
}

/* The first byte says how the rest is divided, and whether half of it was sent to the client. */
int LLVMFuzzerTestOneInput(const u8 *data, size_t bytes)
{
    if (bytes < 2) return 0;
    size_t sent = data[0] & 128 ? bytes / 2 : 0;
    struct vx_h2_meter whole = feed(data + 1, bytes - 1, sent, bytes);
    struct vx_h2_meter torn = feed(data + 1, bytes - 1, sent, 1 + data[0] % 37u);
    VX_ASSERT(whole.calls == torn.calls);
    VX_ASSERT(whole.work == torn.work);
    VX_ASSERT(whole.bytes == torn.bytes);
    VX_ASSERT(whole.finished == torn.finished);
    VX_ASSERT(whole.came == torn.came);
    VX_ASSERT(whole.held == torn.held);
    VX_ASSERT(whole.waiting == torn.waiting);
    VX_ASSERT(whole.waiting_held == torn.waiting_held);
    VX_ASSERT(whole.fault == torn.fault);
    VX_ASSERT(whole.hpack.decoded == torn.hpack.decoded || whole.fault);
    VX_ASSERT(whole.hpack.table.used == torn.hpack.table.used || whole.fault);
    return 0;
}
