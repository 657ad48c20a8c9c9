/* regions_rig - a table of regions whose workers the test plays, and objects for it.
 *
 * vx_workers_* are the rig's: it records every message, and answers MAPPED when the test
 * says so.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_REGIONS_RIG_H
#define VX_TESTS_REGIONS_RIG_H

#include "server/regions/regions.h"
#include "server/workers/workers.h"

enum { RIG_WORKERS = 3, RIG_TOLD_MAX = 2048 };

/* One message to a worker. */
struct rig_told {
    i32 kind, worker, region;
    u64 serial, object_bytes; /* of the descriptor; 0 = none came */
    struct vx_message_map map;
};

/* The supplementary groups of the process on connection 1. */
#define RIG_GROUP 5005

extern struct vx_worker_info rig_infos[RIG_WORKERS];
extern struct rig_told rig_told[RIG_TOLD_MAX];
extern i32 rig_told_count, rig_killed, rig_rings;
extern struct vx_config rig_config;
extern struct vx_regions *rig_regions;
extern u64 rig_dead; /* a connection that is gone; 0 = none */
extern void *rig_waiter;
extern enum vx_code rig_added;
extern struct vx_why rig_why;

/* Workers 0 and 1 are up: cpu, fake:0; 2 is down: cuda:5. */
void rig_set_up(const char *client_shm);
/* Opens the table again, on a loop or on none, with the setting client_shm as it is
 * now. */
void rig_open_on(struct uv_loop_s *loop);
void rig_tear_down(void);
struct vx_peer rig_peer(u64 connection); /* on a Unix socket, our own user */

/* A shared memory object "/NAME" of so many bytes; the key without its slash. */
const char *rig_object(const char *name, u64 bytes);
/* Cuts or grows its object. */
void rig_resize(const char *name, u64 bytes);
void rig_drop_object(const char *name);

/* Registers NAME over an object of the same name. */
enum vx_code rig_add(u64 connection, const char *name, u64 offset, u64 bytes);
enum vx_code rig_add_device(u64 connection, const char *name, i64 device, void *waiter);
enum vx_code rig_use(u64 connection, const char *name, u64 offset, u64 bytes,
                     struct vx_place *use);
void rig_mapped(const struct rig_told *told, enum vx_code code);
/* Answers every MAP since `from`. */
void rig_mapped_all(i32 from);
void rig_step(void);
/* Messages of one kind to one worker; -1 = any. */
i32 rig_told_of(i32 kind, i32 worker);
struct vx_regions_counts rig_counts(void);

#endif
