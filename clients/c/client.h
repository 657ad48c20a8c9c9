/* client - the connection's state, shared by the files of the library.
 *
 *   struct voxel_client *client;
 *   voxel_client_open("127.0.0.1:8001", NULL, &client, &error);
 *
 * The states of an asynchronous call, and the thread that changes them:
 *
 *   new      -> active     voxel_call_start                            the caller's
 *   active   -> draining   its batch is back, gRPC holds a piece       the serving one
 *   active   -> ended      its batch is back, gRPC holds no piece      the serving one
 *   draining -> ended      gRPC has dropped the last piece             the serving one
 *
 * Owner    the user of the library.
 * Thread   `lock` guards active, draining, spare, closing and the members of the thread
 *          that connects; the counters are atomic.
 * Limits   VOXEL_THREADS_MAX threads and the one that connects; as many spare queues as
 *          blocking calls ever ran at once.
 * Fails    as voxel.h says.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_C_CLIENT_H
#define VOXEL_CLIENTS_C_CLIENT_H

#include "clients/c/transport.h"

#include <grpc/grpc_security.h>

#include <pthread.h>

/* A completion queue that serves one blocking call at a time. */
struct voxel_queue {
    grpc_completion_queue *queue;
    struct voxel_queue *next;
};

struct voxel_client {
    struct voxel_options options;
    char *authorization; /* "Bearer TOKEN", wiped at the end; NULL = none */
    grpc_channel *channel;
    grpc_completion_queue *queue; /* of the asynchronous calls */
    pthread_mutex_t lock;
    pthread_cond_t quiet; /* signalled when in_flight becomes 0 */
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
    bool connect_started; /* the thread must be joined */
    bool connecting;      /* the thread still waits for a connection */
};

/* Refuses with INVALID_ARGUMENT an address that gRPC would misread or could not use at
 * the first call. */
enum voxel_code voxel_address_check(const char *address, struct voxel_error *error);

/* Letters, digits and - . _ ~ + / =: what voxeld takes. */
#define VOXEL_TOKEN_BYTES_MAX 256
/* Whether what is sent there stays on this host. */
bool voxel_address_is_local(const char *address);

/* Credentials of a channel: plain without `tls`.  INVALID_ARGUMENT for a file that is not
 * what it should be, with its name. */
enum voxel_code voxel_secure_make(const struct voxel_tls *tls,
                                  grpc_channel_credentials **credentials,
                                  struct voxel_error *error);

/* A queue for one blocking call, to be given back after it; NULL without memory. */
struct voxel_queue *voxel_queue_take(struct voxel_client *client);
void voxel_queue_give(struct voxel_client *client, struct voxel_queue *queue);

/* Waits at most `timeout_us` (negative = no limit) for one event and runs the callbacks
 * of the calls that have ended, *ran of them.  False when the queue is shut down. */
bool voxel_client_serve(struct voxel_client *client, int64_t timeout_us, int32_t *ran);
/* Called after a call that failed: if the channel has no connection, starts a thread that
 * waits in gRPC until it has one.  Any thread that may make calls. */
void voxel_connect_go_on(struct voxel_client *client);
/* Joins that thread.  The channel must have been destroyed before. */
void voxel_connect_close(struct voxel_client *client);
/* Counts the end of one asynchronous call. */
void voxel_client_count_end(struct voxel_client *client);

#endif
