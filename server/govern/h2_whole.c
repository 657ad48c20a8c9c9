/* SPDX-License-Identifier: Apache-2.0 */
#include "server/govern/h2_whole.h"

void vx_h2_whole_set(struct vx_h2_meter *meter, struct vx_h2_stream *stream, u32 bytes)
{
    meter->whole += (i64)bytes - stream->whole;
    stream->whole = bytes;
}

static void orphans_add(struct vx_h2_meter *meter, i64 bytes, i32 count)
{
    meter->orphaned += bytes;
    meter->whole += bytes;
    meter->orphans += count;
}

void vx_h2_whole_orphans(struct vx_h2_meter *meter, i32 most)
{
    const i32 more = meter->orphans - most;
    if (more > 0)
        orphans_add(meter,
                    most ? -(meter->orphaned / meter->orphans * more) : -meter->orphaned,
                    -more);
}

void vx_h2_whole_received(struct vx_h2_meter *meter, size_t bytes)
{
    if (!meter->whole) return;
    for (i32 at = 0; at < meter->streams_count; at++) {
        if (meter->streams[at].whole != bytes) continue;
        vx_h2_whole_set(meter, &meter->streams[at], 0);
        return;
    }
    if (!meter->orphans) return;
    const bool last = meter->orphans == 1 || (i64)bytes >= meter->orphaned;
    orphans_add(meter, last ? -meter->orphaned : -(i64)bytes,
                last ? -meter->orphans : -1);
}

void vx_h2_whole_orphan(struct vx_h2_meter *meter, struct vx_h2_stream *stream)
{
    const u32 bytes = stream->whole;
    vx_h2_whole_set(meter, stream, 0);
    if (bytes) orphans_add(meter, bytes, 1);
}
