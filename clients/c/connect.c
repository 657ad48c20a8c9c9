/* connect - lets gRPC go on connecting between calls.
 *
 * gRPC notices a new connection only while some thread waits inside it, and a call to an
 * absent server fails at once, without waiting.  A program that retries after a pause
 * would then find a server that came up only through gRPC's own check every 5 s.  So a
 * call that finds no connection starts a thread that waits in gRPC until there is one.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/client.h"

#include <signal.h>

/* True if there is nothing to wait for: the channel has a connection, or will not try to
 * connect before the next call. */
static bool state_is_settled(grpc_connectivity_state state)
{
    return state != GRPC_CHANNEL_CONNECTING && state != GRPC_CHANNEL_TRANSIENT_FAILURE;
}

/* Waits for the channel's next state.  False if there is nothing to wait for.  The lock
 * protects the channel: it is destroyed only after `closing` was set under the lock, and
 * its destruction ends the wait. */
static bool connect_wait(struct voxel_client *client)
{
    gpr_timespec never = gpr_inf_future(GPR_CLOCK_MONOTONIC);
    pthread_mutex_lock(&client->lock);
    grpc_connectivity_state state = GRPC_CHANNEL_SHUTDOWN;
    if (!client->closing)
        state = grpc_channel_check_connectivity_state(client->channel, 0);
    client->connecting = !state_is_settled(state);
    bool wait = client->connecting;
    if (wait)
        grpc_channel_watch_connectivity_state(client->channel, state, never,
                                              client->connect_queue, client);
    pthread_mutex_unlock(&client->lock);
    if (wait) grpc_completion_queue_next(client->connect_queue, never, NULL);
    return wait;
}

static void *connect_main(void *context)
{
    while (connect_wait(context)) continue;
    return NULL;
}

void voxel_connect_go_on(struct voxel_client *client)
{
    sigset_t all, before;
    if (state_is_settled(grpc_channel_check_connectivity_state(client->channel, 0)))
        return;
    pthread_mutex_lock(&client->lock);
    if (!client->closing && !client->connecting) {
        /* The previous thread has settled and does not take the lock any more. */
        if (client->connect_started) pthread_join(client->connect_thread, NULL);
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        client->connect_started =
            pthread_create(&client->connect_thread, NULL, connect_main, client) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        client->connecting = client->connect_started;
    }
    pthread_mutex_unlock(&client->lock);
}

void voxel_connect_close(struct voxel_client *client)
{
    if (client->connect_started) pthread_join(client->connect_thread, NULL);
}
