/* SPDX-License-Identifier: Apache-2.0 */
#include "server/govern/h2_credit.h"

void vx_h2_credit_add(struct vx_h2_meter *meter, struct vx_h2_stream *stream, i64 more)
{
    const bool was = stream->credit < 0;
    stream->credit += more;
    meter->overdrawn += (stream->credit < 0) - was;
}

void vx_h2_credit_update(struct vx_h2_meter *meter, u32 id, i64 more)
{
    struct vx_h2_stream *stream = vx_h2_meter_stream(meter, id);
    if (!id) meter->window += more;
    if (stream) vx_h2_credit_add(meter, stream, more);
}

/* Streams that are open have more, too. */
void vx_h2_credit_settle(struct vx_h2_meter *meter)
{
    const i64 more = VX_H2_STREAM_WINDOW_BYTES - VX_H2_WINDOW_BYTES;
    if (meter->settled) return;
    meter->settled = true;
    meter->stream_window += more;
    for (i32 i = 0; i < meter->streams_count; i++)
        vx_h2_credit_add(meter, &meter->streams[i], more);
}
