/* SPDX-License-Identifier: Apache-2.0 */
#include "server/metrics/metrics_tokens.h"

#include "server/metrics/metrics_private.h"

#include <stdio.h>

#define COUNT(n_) ((struct vx_metric_value){.whole = (u64)(n_)})

/* One lock for each entry of each row: at most a few thousand. */
void vx_metrics_render_tokens(struct vx_access *access, struct vx_text *text)
{
    struct vx_metric_family family = {.text = text};
    char token[VX_ACCESS_NAME_BYTES], label[VX_ACCESS_NAME_BYTES + 16];
    struct vx_access_counts own, *counts = &own;
    if (!access) return;
/* The names of entries have no character that a label escapes. */
#define VX_METRIC_TOKEN(name_, type_, labels_, value_, help_)                            \
    vx_metrics_family(&family, #name_, #type_, help_);                                   \
    for (i32 i = -1; vx_access_counts_get(access, i, token, &own); i++) {                \
        snprintf(label, sizeof label, "token=\"%s\"", token);                            \
        vx_metrics_series(text, #name_, label, labels_, value_);                         \
    }
#include "server/metrics/metrics_forms.h"
}
