/* models_rig - models with workers that only remember what they were told.
 *
 * It defines vx_workers_* itself, so the real ones, which start processes, stay in the
 * library.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_MODELS_RIG_H
#define VX_TESTS_MODELS_RIG_H

#include "server/models/models.h"

#define RIG_WORKERS  2
#define RIG_TOLD_MAX (512 + 2 * VX_INSTANCES_MAX)

extern struct vx_worker_info rig_infos[RIG_WORKERS];
extern struct vx_message_head rig_told[RIG_TOLD_MAX]; /* what was sent, in order */
extern i32 rig_told_to[RIG_TOLD_MAX], rig_told_count;
extern i32 rig_notes_asked[RIG_WORKERS]; /* LOADs that wanted notes */
extern struct vx_registry *rig_registry;
extern struct vx_sched *rig_sched;
extern struct vx_models *rig_models;
extern int rig_lost, rig_looks;
extern i64 rig_now_ns;              /* what retries are timed by */
extern bool rig_refuses;            /* workers do not read what they are told */
extern i32 rig_channels;            /* of the files on disk, as a worker reads them */
extern i64 rig_voxels[RIG_WORKERS]; /* what fits on each worker's device */
extern i64 rig_batch_voxels[RIG_WORKERS]; /* and in a batch there */
extern struct vx_config rig_config;       /* of vx_models_start */
extern struct vx_repository_listing rig_listing;
/* How the last load or unload ended: its waiter, NULL = none has. */
extern void *rig_ended;
extern enum vx_code rig_ended_code;
extern char rig_ended_why[VX_WHY_BYTES];

void rig_set_up(void);
void rig_tear_down(void);
void rig_worker_up(i32 worker);
void rig_worker_down(i32 worker);
/* So much later, and what has become due by then. */
void rig_later(i64 ns);
/* The LOAD that the worker has is read: it may get the next. */
void rig_made(i32 worker);
/* The listing so far, without an entry; rig_list_add; rig_list_give. */
void rig_list_begin(void);
void rig_list_add(const char *name, i64 version, u64 fingerprint);
void rig_list_give(bool quiet);
/* LOADs that the worker was told. */
i32 rig_loads_told(i32 worker);
/* One version of "m"; 0 = none. */
void rig_list(i64 version, u64 fingerprint);
/* The LOAD that the worker has, answered; its row. */
i32 rig_answer(i32 worker, enum vx_code code);
/* Every LOAD that the worker has and gets, answered OK. */
void rig_answer_all(i32 worker);
enum vx_instance_state rig_state(i32 instance);
i32 rig_picked(const char *name, i64 version);

#endif
