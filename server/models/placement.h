/* placement - which workers load which model, as the setting `placement` says.
 *
 * Rules are separated by semicolons.  Each names a model, or with `*` every model that no
 * other rule names, and assigns names of devices, a number of replicas, or `all`:
 *
 *   normals=cuda:0,cuda:1; big=2; *=all
 *
 *   VX_TRY(vx_placement_parse(text, &devices, &why, &placement));
 *   u32 workers = vx_placement_pick(&placement, "normals", &load);
 *
 * Replicas go to the workers that have the fewest bytes of weights, on a tie to the
 * first.  They are chosen once, when the model gets its instance, and do not move: while
 * a worker is down, its replica is missing.
 *
 * Owner    plain data.
 * Thread   any; pure.
 * Limits   VX_PLACEMENT_RULES_MAX rules; VX_WORKERS_MAX workers.
 * Fails    INVALID_ARGUMENT; `why` names the rule, what was expected and what it got.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_PLACEMENT_H
#define VX_SERVER_PLACEMENT_H

#include "server/sched/sched.h"

/* One for each model that can be loaded. */
#define VX_PLACEMENT_RULES_MAX VX_INSTANCES_MAX

struct vx_placement_rule {
    char model[VX_NAME_BYTES]; /* "*": every other model */
    u32 workers;               /* bit per worker that is named; 0 = use `replicas` */
    i32 replicas;
};
struct vx_placement {
    i32 rules_count; /* 0: every model on every worker */
    struct vx_placement_rule rules[VX_PLACEMENT_RULES_MAX];
};

/* The workers' devices in their order; two workers may have the same. */
struct vx_placement_devices {
    i32 count;
    const char *names[VX_WORKERS_MAX];
    bool open; /* the machine may have more: any device's name will do */
};
VX_MUST_USE vx_status vx_placement_parse(const char *text,
                                         const struct vx_placement_devices *devices,
                                         struct vx_why *why,
                                         struct vx_placement *placement);
/* Whether no rule wants more devices than there are.  Where the machine may have more, all of
 * those that it has are taken. */
VX_MUST_USE vx_status vx_placement_check(const struct vx_placement *placement,
                                         const struct vx_placement_devices *devices,
                                         struct vx_why *why);

/* Bytes of weights that each worker has or will have. */
struct vx_placement_load {
    i32 count;
    i64 bytes[VX_WORKERS_MAX];
};
/* Bit per worker; at least one.  All workers if there are fewer than replicas. */
u32 vx_placement_pick(const struct vx_placement *placement, const char *model,
                      const struct vx_placement_load *load);

#endif
