/* metrics_private - what the files of metrics share; no other file includes it.
 *
 *   metrics.c          counting
 *   metrics_recent.c   the last minute, and points of the last ten minutes
 *   metrics_text.c     Prometheus text
 *
 * Owner    static.
 * Thread   loop.
 * Limits   as metrics.h.
 * Fails    as metrics.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_METRICS_PRIVATE_H
#define VX_SERVER_METRICS_PRIVATE_H

#include "server/metrics/metrics.h"

#define VX_METRICS_MAGIC 0x76784d65u /* "vxMe" */

/* The bounds of a histogram; above the last there is one more bucket. */
struct vx_metrics_scale {
    const u64 *bounds;
    size_t count;
};
extern const struct vx_metrics_scale vx_metrics_scales[VX_HISTOGRAMS_COUNT];

#endif
