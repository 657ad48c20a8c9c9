/* missed - which models and files should serve and do not, and why; why the server is not ready.
 *
 *   struct vx_missed missed = {0};
 *   while (vx_missed_next(sources, &missed)) print(missed.name, missed.why);
 *
 * Owner    the caller; a name is borrowed until the next iteration of the loop.
 * Thread   loop.
 * Limits   VX_MISSED_WHY_BYTES of a sentence.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_MISSED_H
#define VX_SERVER_MISSED_H

#include "server/metrics/metrics.h"

/* Room for a name, a reason and the text around them. */
#define VX_MISSED_WHY_BYTES (VX_NAME_BYTES + VX_WHY_BYTES + 128)

/* Where a walk is: rows of the registry, then versions in the repository that have none,
 * then models without a version that could serve. */
enum vx_missed_kind { VX_MISSED_ROW, VX_MISSED_ENTRY, VX_MISSED_ODD };

struct vx_missed {
    enum vx_missed_kind kind;
    const char *name;
    i64 version;  /* 0 when the model has none */
    bool awaited; /* the server may be not ready because of it */
    bool failed;  /* it cannot be loaded; else it loads, or waits */
    char why[VX_MISSED_WHY_BYTES];
    /* The walk's own. */
    i32 cursor;
    const struct vx_repository_entry *entry;
};

/* The next one; false at the end.  Begin with zeros. */
bool vx_missed_next(const struct vx_metrics_sources *sources, struct vx_missed *missed);
/* The same for versions and changed files that are loading or cannot be loaded, of models
 * that serve another version or older files; the server is ready all the same. */
bool vx_missed_next_update(const struct vx_metrics_sources *sources,
                           struct vx_missed *missed);
/* Why this version does not serve; "" when it does. */
void vx_missed_model(const struct vx_instance *model, char why[VX_MISSED_WHY_BYTES]);
/* Why the server is not ready; "" when it is. */
void vx_missed_server(const struct vx_metrics_sources *sources,
                      char why[VX_MISSED_WHY_BYTES]);
/* What is odd although the server is ready: in the repository, or a new model, a version or
 * changed files that do not serve.  "" when nothing is, or it is not ready. */
void vx_missed_note(const struct vx_metrics_sources *sources,
                    char note[VX_MISSED_WHY_BYTES]);

#endif
