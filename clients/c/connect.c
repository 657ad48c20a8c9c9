/* Lets gRPC go on connecting between calls.
 *
 * gRPC sees that a connection stands only while somebody waits in it, and a call to a server that
 * is away fails at once, without waiting.  A program that tries again after a pause would then
 * learn of a server that came up only from gRPC's own look, every 5 s.  So a call that found no
 * connection leaves a thread behind, which waits in gRPC until there is one.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/client.h"

#include <signal.h>

/* Nothing to wait for: there is a connection, or none is wanted before the next call. */
static bool state_is_settled(grpc_connectivity_state state)
{
    return state != GRPC_CHANNEL_CONNECTING && state != GRPC_CHANNEL_TRANSIENT_FAILURE;
}

/* Waits for the next state.  False when there is nothing to wait for any more.  The lock keeps the
 * channel: it is destroyed, which ends the wait, only once `closing` is seen here. */
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
        /* One that has settled takes the lock no more. */
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
