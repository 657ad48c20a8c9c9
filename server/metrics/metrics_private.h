/* metrics_private - what the files of metrics share; no other file includes it.
 *
 *   metrics.c          counting
 *   metrics_recent.c   the last minute, and points of the last ten minutes
 *   metrics_text.c     Prometheus text; metrics_tokens.c, that of tokens
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

#include "server/base/text.h"
#include "server/metrics/metrics.h"

#define VX_METRICS_MAGIC 0x76784d65u /* "vxMe" */

/* The bounds of a histogram; above the last there is one more bucket. */
struct vx_metrics_scale {
    const u64 *bounds;
    size_t count;
};
extern const struct vx_metrics_scale vx_metrics_scales[VX_HISTOGRAMS_COUNT];

/* ------- Prometheus text ------- */

/* whole + billionths / 10^9: never negative, never NaN or infinite. */
struct vx_metric_value {
    bool absent;
    u64 whole;
    u32 billionths;
};

struct vx_metric_family {
    struct vx_text *text;
    const char *name; /* of the previous row: HELP and TYPE are written once per name */
};
void vx_metrics_family(struct vx_metric_family *family, const char *name,
                       const char *type, const char *help);
/* `labels` and `more` are complete, escaped key="value" pairs; either may be "". */
void vx_metrics_series(struct vx_text *text, const char *name, const char *labels,
                       const char *more, struct vx_metric_value value);

#endif
