/* models_rig - models whose workers only record the messages they are sent.
 *
 * It defines vx_workers_* itself, so that the real functions, which start processes, are
 * not linked.
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
extern i32 rig_notes_asked[RIG_WORKERS]; /* LOADs that ask for notes */
extern struct vx_registry *rig_registry;
extern struct vx_sched *rig_sched;
extern struct vx_models *rig_models;
extern int rig_lost, rig_looks;
extern u32 rig_useless;             /* bit per worker that was said to be of no use */
extern i64 rig_now_ns;              /* the time for retries */
extern bool rig_refuses;            /* workers do not read their messages */
extern i32 rig_channels;            /* of the files on disk, as a worker reads them */
extern _Atomic i64 rig_most;        /* the most voxels that a model serves, as told */
extern i64 rig_voxels[RIG_WORKERS]; /* what fits on each worker's device */
extern enum vx_bound rig_bound[RIG_WORKERS]; /* and why no more does */
extern i64 rig_batch_voxels[RIG_WORKERS];    /* and in a batch there */
extern struct vx_config rig_config;          /* for vx_models_start */
extern struct vx_repository_listing rig_listing;
/* How the last load or unload ended: its waiter, NULL = none has ended. */
extern void *rig_ended;
extern enum vx_code rig_ended_code;
extern char rig_ended_why[VX_WHY_BYTES];

void rig_set_up(void);
void rig_tear_down(void);
/* With these values of model_control and load_model. */
void rig_start(const char *control, const char *load);
void rig_worker_up(i32 worker);
void rig_worker_down(i32 worker);
/* Moves the time on by so much, and does what has become due. */
void rig_later(i64 ns);
/* The worker has read its LOAD's files: it may get the next LOAD. */
void rig_made(i32 worker);
/* The listing under construction: begin without an entry; rig_list_add; rig_list_give. */
void rig_list_begin(void);
void rig_list_add(const char *name, i64 version, u64 fingerprint);
void rig_list_give(bool quiet);
/* The folder of a model that cannot be read. */
void rig_list_unread(const char *name);
/* LOADs that the worker was sent. */
i32 rig_loads_told(i32 worker);
/* Lists one version of "m"; 0 = none. */
void rig_list(i64 version, u64 fingerprint);
/* Answers the LOAD that the worker has; returns its instance. */
i32 rig_answer(i32 worker, enum vx_code code);
/* Answers OK to every LOAD that the worker has and gets. */
void rig_answer_all(i32 worker);
enum vx_instance_state rig_state(i32 instance);
i32 rig_picked(const char *name, i64 version);

#endif
