/* SPDX-License-Identifier: Apache-2.0 */
#include "server/metrics/metrics_tokens.h"

#include "engine/base/process/check.h"

#include <string.h>

#define COUNT(n_) ((u64)(n_))

/* HELP and TYPE are written once for the rows of one name. */
static void family_begin(struct vx_text *text, const char **last, const char *name,
                         const char *type, const char *help)
{
    if (*last && !strcmp(*last, name)) return;
    *last = name;
    vx_text_add(text, "# HELP ");
    vx_text_add(text, name);
    vx_text_add(text, " ");
    vx_text_add(text, help);
    vx_text_print(text, "\n# TYPE %s %s\n", name, type);
}

/* The names of entries have no character that a label escapes. */
static void series(struct vx_text *text, const char *name, const char *token,
                   const char *labels, u64 value)
{
    vx_text_print(text, "%s{token=\"%s\"%s%s} %llu\n", name, token, *labels ? "," : "",
                  labels, (unsigned long long)value);
}

/* One lock for each entry of each row: at most a few thousand. */
void vx_metrics_render_tokens(struct vx_access *access, struct vx_text *text)
{
    const char *last = NULL;
    char token[VX_ACCESS_NAME_BYTES];
    struct vx_access_counts own, *counts = &own;
    if (!access) return;
#define VX_METRIC_TOKEN(name_, type_, labels_, value_, help_)                            \
    family_begin(text, &last, #name_, #type_, help_);                                    \
    for (i32 i = -1; vx_access_counts_get(access, i, token, &own); i++)                  \
        series(text, #name_, token, labels_, value_);
#include "server/metrics/metrics_forms.h"
}
