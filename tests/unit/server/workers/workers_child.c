/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/server/workers/workers_child.h"

#include "server/ipc/channel.h"
#include "server/sched/sched.h"
#include "server/worker/worker.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define READS 7 /* PROGRESS of this load is about files, not the warm-up */
#define MADE  8 /* and of this one, that files are read */

static void say(i32 kind, u64 batch)
{
    static union vx_message message;
    memset(&message, 0, sizeof message);
    message.head = (struct vx_message_head){.kind = kind, .serial = batch};
    size_t bytes = sizeof message.up;
    if (kind == VX_MESSAGE_LOADED) message.loaded.code = VX_CODE_NOT_FOUND;
    if (kind == VX_MESSAGE_PROGRESS)
        message.progress.stage = batch == READS ? VX_PROGRESS_READ : VX_PROGRESS_WARM;
    if (kind == VX_MESSAGE_PROGRESS && batch == MADE)
        message.progress.stage = VX_PROGRESS_MADE;
    if (kind == VX_MESSAGE_DONE) {
        message.done.items_count = 1;
        message.done.items[0].why = -1;
        bytes = vx_message_done_bytes(&message.done);
    }
    if (kind == VX_MESSAGE_LOADED) bytes = sizeof message.loaded;
    if (kind == VX_MESSAGE_PROGRESS) bytes = sizeof message.progress;
    if (kind == VX_MESSAGE_ENDS) bytes = sizeof message.ends;
    if (kind == VX_MESSAGE_ENDS) vx_why_set(&message.ends.why, "as the test wants");
    if (vx_channel_send(VX_WORKER_CHANNEL_FD, &message.head, bytes).fault) _exit(0);
}

static void hang(void)
{
    for (;;) pause();
}

static void child_answer(const char *manner, const struct vx_message_head *head)
{
    bool is_good = !strcmp(manner, "good");
    if (head->kind == VX_MESSAGE_STATS && strcmp(manner, "deaf")) {
        say(VX_MESSAGE_STATED, 0);
    } else if (head->kind == VX_MESSAGE_RUN && (is_good || !strcmp(manner, "forgets"))) {
        say(VX_MESSAGE_DONE, head->serial);
    } else if (head->kind == VX_MESSAGE_RUN && !strcmp(manner, "leaves")) {
        say(VX_MESSAGE_ENDS, 0);
    } else if (head->kind == VX_MESSAGE_RUN && !strcmp(manner, "quits")) {
        say(VX_MESSAGE_DONE, head->serial);
        say(VX_MESSAGE_ENDS, 0);
        _exit(1);
    } else if (head->kind == VX_MESSAGE_RUN && !strcmp(manner, "closes")) {
        close(VX_WORKER_CHANNEL_FD);
        hang();
    } else if (head->kind == VX_MESSAGE_LOAD && !strcmp(manner, "reads")) {
        /* sleep: it reads files */
        for (;; usleep(20 * 1000)) say(VX_MESSAGE_PROGRESS, READS);
    } else if (head->kind == VX_MESSAGE_LOAD) {
        if (strcmp(manner, "chats")) say(VX_MESSAGE_PROGRESS, MADE);
        for (int i = 0; i < 10 && is_good; i++) {
            usleep(450 *
                   1000); /* sleep: it works, longer in all than a load may be silent */
            say(VX_MESSAGE_PROGRESS, head->serial);
        }
        if (!is_good) return;
        usleep(2100 * 1000); /* sleep: the warm-up, longer than a batch may be silent */
        say(VX_MESSAGE_LOADED, head->serial);
        usleep(100 * 1000); /* sleep: the batch behind it */
    }
}

int workers_child(const char *manner)
{
    static union vx_message in;
    if (!strcmp(manner, "mute")) hang();
    if (!strcmp(manner, "ends")) {
        say(VX_MESSAGE_ENDS, 0);
        return 1;
    }
    say(VX_MESSAGE_UP, 0);
    bool is_cut = !strcmp(manner, "cut"), is_wild = !strcmp(manner, "wild");
    if (is_wild || is_cut || !strcmp(manner, "lies")) {
        in.head.kind = VX_MESSAGE_LOADED;
        in.head.instance = is_wild ? VX_INSTANCES_MAX : 0;
        in.loaded.code = is_wild ? VX_CODE_NOT_FOUND : VX_CODE_OK;
        in.loaded.signature.outputs_count = VX_OUTPUTS_MAX + 1;
        size_t bytes = is_cut ? sizeof in.head : sizeof in.loaded;
        /* Bypasses our own sender, which would refuse it. */
        if (send(VX_WORKER_CHANNEL_FD, &in, bytes, MSG_NOSIGNAL) < 0) return 1;
        say(VX_MESSAGE_ENDS, 0); /* which the front must not trust */
        hang();
    }
    for (;;) {
        size_t bytes;
        vx_status st = vx_channel_receive(VX_WORKER_CHANNEL_FD, &in, &bytes);
        if (!st.fault)
            child_answer(manner, &in.head);
        else if (!strcmp(manner, "stays"))
            hang();
        else
            return 0;
    }
}
