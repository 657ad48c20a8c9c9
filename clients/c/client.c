/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* explicit_bzero */
#include "clients/c/client.h"

#include "clients/c/error.h"
#include "clients/c/memory.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <grpc/support/time.h>

#define RECONNECT_FIRST_MS 100
/* How long one attempt may take: a busy or distant server must not count as absent. */
#define CONNECT_LONGEST_MS 20000
/* The longest pause between attempts: at most this late a new server is found. */
#define RECONNECT_LONGEST_MS 1000

struct voxel_queue *voxel_queue_take(struct voxel_client *client)
{
    pthread_mutex_lock(&client->lock);
    struct voxel_queue *queue = client->spare;
    if (queue) client->spare = queue->next;
    pthread_mutex_unlock(&client->lock);
    if (queue) return queue;
    queue = voxel_memory_take(1, sizeof *queue);
    if (queue) queue->queue = grpc_completion_queue_create_for_pluck(NULL);
    return queue;
}

void voxel_queue_give(struct voxel_client *client, struct voxel_queue *queue)
{
    pthread_mutex_lock(&client->lock);
    queue->next = client->spare;
    client->spare = queue;
    pthread_mutex_unlock(&client->lock);
}

void voxel_client_count_end(struct voxel_client *client)
{
    /* Under the lock, since the closing thread may free the client once it has seen 0. */
    pthread_mutex_lock(&client->lock);
    if (atomic_fetch_sub(&client->in_flight, 1) == 1)
        pthread_cond_broadcast(&client->quiet);
    pthread_mutex_unlock(&client->lock);
}

int64_t voxel_client_in_flight(const struct voxel_client *client)
{
    return atomic_load(&((struct voxel_client *)(uintptr_t)client)->in_flight);
}

static void *thread_main(void *context)
{
    struct voxel_client *client = context;
    int32_t ran;
    while (voxel_client_serve(client, -1, &ran)) continue;
    return NULL;
}

/* Never quotes it. */
static enum voxel_code token_check(const char *token, struct voxel_error *error)
{
    static const char known[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789-._~+/=";
    size_t length = token ? strlen(token) : 1;
    if (token && strspn(token, known) != length)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "expected a token of letters, digits and - . _ ~ + / =, "
                               "got other characters");
    if (length < 1 || length > VOXEL_TOKEN_BYTES_MAX)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "expected a token of 1 to %d characters, got %zu",
                               VOXEL_TOKEN_BYTES_MAX, length);
    return VOXEL_OK;
}

static bool token_keep(struct voxel_client *client, const char *token)
{
    client->options.token = NULL; /* the caller's */
    if (!token) return true;
    size_t bytes = sizeof "Bearer " + strlen(token);
    client->authorization = voxel_memory_take(1, bytes);
    if (client->authorization) snprintf(client->authorization, bytes, "Bearer %s", token);
    return client->authorization != NULL;
}

static void token_forget(struct voxel_client *client)
{
    if (!client->authorization) return;
    explicit_bzero(client->authorization, strlen(client->authorization));
    voxel_memory_give(client->authorization);
}

static enum voxel_code options_check(const char *address,
                                     const struct voxel_options *options,
                                     struct voxel_error *error)
{
    enum voxel_code code = voxel_address_check(address, error);
    if (code) return code;
    if (options->threads < 0 || options->threads > VOXEL_THREADS_MAX)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "threads must be 0..%d, not %d", VOXEL_THREADS_MAX,
                               (int)options->threads);
    if (options->deadline_us < 0)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "deadline_us must not be negative");
    return token_check(options->token, error);
}

/* An address of this host, which is reached without the proxy that http_proxy names. */
static bool is_local(const char *address)
{
    static const char *const begins[] = {"unix:", "localhost:", "127.", "[::1]:"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (!strncmp(address, begins[i], strlen(begins[i]))) return true;
    return false;
}

static void channel_open(struct voxel_client *client, const char *address,
                         grpc_channel_credentials *credentials)
{
    const struct voxel_tls *tls = client->options.tls;
    const char *name = tls ? tls->server_name : NULL;
    grpc_arg list[] = {
        {.type = GRPC_ARG_INTEGER,
         .key = (char *)(uintptr_t)GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH,
         .value.integer = INT32_MAX},
        {.type = GRPC_ARG_INTEGER,
         .key = (char *)(uintptr_t)GRPC_ARG_MAX_SEND_MESSAGE_LENGTH,
         .value.integer = INT32_MAX},
        /* Two clients must not share a connection, since it owns their regions. */
        {.type = GRPC_ARG_INTEGER,
         .key = (char *)(uintptr_t)GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL,
         .value.integer = 1},
        /* gRPC's default first pause, 1 s, is too long for a server on the same host. */
        {.type = GRPC_ARG_INTEGER,
         .key = (char *)(uintptr_t)GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
         .value.integer = RECONNECT_FIRST_MS},
        {.type = GRPC_ARG_INTEGER,
         .key = (char *)(uintptr_t)GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
         .value.integer = CONNECT_LONGEST_MS},
        {.type = GRPC_ARG_INTEGER,
         .key = (char *)(uintptr_t)GRPC_ARG_MAX_RECONNECT_BACKOFF_MS,
         .value.integer = RECONNECT_LONGEST_MS},
        {.type = GRPC_ARG_STRING,
         .key = (char *)(uintptr_t)GRPC_ARG_PRIMARY_USER_AGENT_STRING,
         .value.string = (char *)(uintptr_t) "voxelclient/" VX_VERSION},
        {.type = GRPC_ARG_INTEGER,
         .key = (char *)(uintptr_t)GRPC_ARG_ENABLE_HTTP_PROXY,
         .value.integer = !is_local(address)},
        /* The last: it is left out without a name. */
        {.type = GRPC_ARG_STRING,
         .key = (char *)(uintptr_t)GRPC_SSL_TARGET_NAME_OVERRIDE_ARG,
         .value.string = (char *)(uintptr_t)name},
    };
    grpc_channel_args args = {sizeof list / sizeof *list - !name, list};
    client->channel = grpc_channel_create(address, credentials, &args);
    grpc_channel_credentials_release(credentials);
}

/* One that has no channel yet. */
static void client_drop(struct voxel_client *client)
{
    pthread_cond_destroy(&client->quiet);
    pthread_mutex_destroy(&client->lock);
    token_forget(client);
    voxel_memory_give(client);
    grpc_shutdown_blocking();
}

enum voxel_code voxel_client_open(const char *address,
                                  const struct voxel_options *options,
                                  struct voxel_client **client, struct voxel_error *error)
{
    static const struct voxel_options defaults;
    *client = NULL;
    if (!options) options = &defaults;
    enum voxel_code code = options_check(address, options, error);
    if (code) return code;
    struct voxel_client *made = voxel_memory_take(1, sizeof *made);
    if (!made) return voxel_error_memory(error, "a client", sizeof *made);
    made->options = *options;
    if (!token_keep(made, options->token)) {
        voxel_memory_give(made);
        return voxel_error_memory(error, "a token", sizeof *made);
    }
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->quiet, NULL);
    /* The threads that start here, gRPC's and ours, block all signals: the program's own
     * threads must get them. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    grpc_init();
    grpc_channel_credentials *credentials;
    code = voxel_secure_make(options->tls, &credentials, error);
    if (code) {
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        client_drop(made);
        return code;
    }
    channel_open(made, address, credentials);
    made->options.tls = NULL; /* the caller's */
    made->queue = grpc_completion_queue_create_for_next(NULL);
    made->connect_queue = grpc_completion_queue_create_for_next(NULL);
    for (int32_t i = 0; i < options->threads; i++) {
        if (pthread_create(&made->threads[i], NULL, thread_main, made) != 0) break;
        made->threads_count++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (made->threads_count < options->threads) {
        voxel_client_close(made);
        return voxel_error_set(error, VOXEL_RESOURCE_EXHAUSTED,
                               "a thread could not be started");
    }
    *client = made;
    return voxel_error_clear(error);
}

static void close_queue(grpc_completion_queue *queue, bool pluck)
{
    gpr_timespec never = gpr_inf_future(GPR_CLOCK_MONOTONIC);
    grpc_completion_queue_shutdown(queue);
    while (!pluck &&
           grpc_completion_queue_next(queue, never, NULL).type != GRPC_QUEUE_SHUTDOWN)
        continue;
    grpc_completion_queue_destroy(queue);
}

void voxel_client_close(struct voxel_client *client)
{
    if (!client) return;
    pthread_mutex_lock(&client->lock);
    client->closing = true;
    for (struct voxel_call *call = client->active; call; call = call->next) {
        call->taken_back = true;
        grpc_call_cancel(call->rpc, NULL);
    }
    if (client->threads_count > 0)
        while (atomic_load(&client->in_flight) > 0)
            pthread_cond_wait(&client->quiet, &client->lock);
    pthread_mutex_unlock(&client->lock);
    int32_t ran;
    while (atomic_load(&client->in_flight) > 0) voxel_client_serve(client, 1000, &ran);
    if (client->threads_count > 0) {
        grpc_completion_queue_shutdown(client->queue);
        for (int32_t i = 0; i < client->threads_count; i++)
            pthread_join(client->threads[i], NULL);
        grpc_completion_queue_destroy(client->queue);
    } else {
        close_queue(client->queue, false);
    }
    for (struct voxel_queue *queue = client->spare, *next; queue; queue = next) {
        next = queue->next;
        close_queue(queue->queue, true);
        voxel_memory_give(queue);
    }
    grpc_channel_destroy(client->channel);
    voxel_connect_close(client);
    close_queue(client->connect_queue, false);
    client_drop(client);
}
