/* client - the connection's state, shared by the files of the library.
 *
 *   struct voxel_client *client;
 *   voxel_client_open("127.0.0.1:8001", NULL, &client, &error);
 *
 * NEW      -> active    voxel_call_start      the caller's thread
 * active   -> draining  its batch came back   the serving thread; gRPC still holds a
 * piece active   -> ended     its batch came back   the serving thread, no piece held
 * draining -> ended     last piece dropped    the serving thread
 *
 * Owner    the user of the library.
 * Thread   `lock` guards active, draining, spare, closing and the thread that connects; the
 *          counters are atomic.
 * Limits   VOXEL_THREADS_MAX threads, and the one that connects; spare queues are as many as blocking calls ever ran
 *          at once.
 * Fails    see voxel.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_C_CLIENT_H
#define VOXEL_CLIENTS_C_CLIENT_H

#include "clients/c/transport.h"

#include <pthread.h>

/* A completion queue for one blocking call at a time. */
struct voxel_queue {
    grpc_completion_queue *queue;
    struct voxel_queue *next;
};

struct voxel_client {
    struct voxel_options options;
    grpc_channel *channel;
    grpc_completion_queue *queue; /* of the asynchronous calls */
    pthread_mutex_t lock;
    pthread_cond_t quiet; /* in_flight has become 0 */
    struct voxel_queue *spare;
    struct voxel_call *active;
    struct voxel_call *draining;
    bool closing;
    atomic_int draining_count;
    _Atomic int64_t in_flight;
    pthread_t threads[VOXEL_THREADS_MAX];
    int32_t threads_count;
    grpc_completion_queue *connect_queue; /* of the thread that connects between calls */
    pthread_t connect_thread;
    bool connect_started; /* to be joined */
    bool connecting;      /* it has not settled yet */
};

/* What gRPC would take otherwise than it is meant, or fail at with the first call, is refused. */
enum voxel_code voxel_address_check(const char *address, struct voxel_error *error);

struct voxel_queue *voxel_queue_take(struct voxel_client *client); /* NULL: no memory */
void voxel_queue_give(struct voxel_client *client, struct voxel_queue *queue);

/* Waits for at most one event and runs what it ends.  False when the queue is shut down.
 */
bool voxel_client_serve(struct voxel_client *client, int64_t timeout_us, int32_t *ran);
/* After a call that failed: if it found no connection, a thread goes on connecting until there is
 * one.  Any thread that may make calls. */
void voxel_connect_go_on(struct voxel_client *client);
/* Joins that thread; the channel has been destroyed. */
void voxel_connect_close(struct voxel_client *client);
/* One asynchronous call is over. */
void voxel_client_count_end(struct voxel_client *client);

#endif
