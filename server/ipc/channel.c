/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/ipc/channel.h"

#include "engine/base/process/check.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Room for every message that can be under way: VX_WORKER_DEPTH RUNs, the one LOAD that
 * is read, and an UNLOAD for each instance, which the kernel counts as about 800 bytes.
 * The kernel doubles this size for its own accounting. */
#define SOCKET_BUFFER_BYTES (1 << 20)
/* A day: the longest time that a model may set; in nanoseconds it does not overflow. */
#define TIME_US_MAX INT64_C(86400000000)
/* Rows times offsets of the largest kernel. */
#define PAIRS_MAX ((i64)VX_KERNEL_OFFSETS_MAX * VX_VOXELS_MAX)

vx_status vx_channel_pair(int fds[2])
{
    VX_ENSURE(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds),
              RESOURCE_EXHAUSTED, "no socket pair for another worker");
    int bytes = SOCKET_BUFFER_BYTES;
    for (int i = 0; i < 2; i++) {
        /* Best effort: the system's maximum may be lower, and its default is usually
         * enough. */
        if (setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes)) continue;
    }
    VX_ASSERT(!fcntl(fds[0], F_SETFL, O_NONBLOCK));
    return VX_OK;
}

/* The k-th error text of a DONE; the texts follow its last item. */
static struct vx_why *done_why_at(const struct vx_message_done *done, i32 k)
{
    const u8 *whys = (const u8 *)done + offsetof(struct vx_message_done, items) +
                     (size_t)done->items_count * sizeof(struct vx_done_item);
    return (struct vx_why *)(uintptr_t)(whys + (size_t)k * sizeof(struct vx_why));
}

/* The k-th text of what layers took, from 0 on. */
static struct vx_taken *done_taken_at(const struct vx_message_done *done, i32 k)
{
    u8 *first = (u8 *)done_why_at(done, done->whys_count);
    return (struct vx_taken *)(first + (size_t)k * sizeof(struct vx_taken));
}

size_t vx_message_done_bytes(const struct vx_message_done *done)
{
    return (size_t)((const u8 *)done_taken_at(done, done->taken_count) -
                    (const u8 *)done);
}

void vx_done_add_taken(struct vx_message_done *done, const struct vx_taken *taken)
{
    VX_ASSERT(done->taken_count < VX_TAKEN_MAX);
    *done_taken_at(done, done->taken_count++) = *taken;
}

const char *vx_done_taken(const struct vx_message_done *done,
                          const struct vx_done_item *item)
{
    VX_ASSERT(item->taken >= 0 && item->taken <= done->taken_count);
    return item->taken ? done_taken_at(done, item->taken - 1)->text : NULL;
}

void vx_done_add_why(struct vx_message_done *done, i32 item, const char *text)
{
    VX_ASSERT(item >= 0 && item < done->items_count);
    VX_ASSERT(done->whys_count < done->items_count);
    done->items[item].why = done->whys_count;
    vx_why_set(done_why_at(done, done->whys_count++), "%s", text);
}

const struct vx_why *vx_done_why(const struct vx_message_done *done, i32 item)
{
    static const struct vx_why none = {""};
    VX_ASSERT(item >= 0 && item < done->items_count);
    i32 why = done->items[item].why;
    return why < 0 ? &none : done_why_at(done, why);
}

static bool is_within(i64 value, i64 min, i64 max)
{
    return value >= min && value <= max;
}

/* Sums of them fit. */
#define TIME_NS_MAX (INT64_C(1) << 54) /* 208 days */

static bool times_are_sound(const struct vx_done_item *item)
{
    return is_within(item->convert_ns, -TIME_NS_MAX, TIME_NS_MAX) &&
           is_within(item->geometry_ns, -TIME_NS_MAX, TIME_NS_MAX) &&
           is_within(item->compute_ns, -TIME_NS_MAX, TIME_NS_MAX) &&
           is_within(item->output_ns, -TIME_NS_MAX, TIME_NS_MAX);
}

static bool done_is_whole(const struct vx_message_done *done, size_t bytes)
{
    if (bytes < offsetof(struct vx_message_done, items)) return false;
    if (done->items_count < 1 || done->items_count > VX_BATCH_ITEMS_MAX) return false;
    if (done->whys_count < 0 || done->whys_count > done->items_count) return false;
    if (!is_within(done->taken_count, 0, VX_TAKEN_MAX)) return false;
    if (!is_within(done->device_ns, -TIME_NS_MAX, TIME_NS_MAX)) return false;
    if (bytes != vx_message_done_bytes(done)) return false;
    for (i32 i = 0; i < done->items_count; i++) {
        const struct vx_done_item *item = &done->items[i];
        if (item->why < -1 || item->why >= done->whys_count) return false;
        if (!is_within(item->taken, 0, done->taken_count)) return false;
        if (!is_within(item->set_voxels, 0, (i64)VX_SETS_MAX * VX_VOXELS_MAX))
            return false;
        if (!times_are_sound(item)) return false;
    }
    for (i32 k = 0; k < done->whys_count; k++)
        if (!memchr(done_why_at(done, k)->text, 0, VX_WHY_BYTES)) return false;
    for (i32 k = 0; k < done->taken_count; k++)
        if (!memchr(done_taken_at(done, k)->text, 0, VX_TAKEN_BYTES)) return false;
    return true;
}

/* Zeros, or three sizes. */
static bool shape_is_sound(const i32 shape[3])
{
    const i64 least = shape[0] != 0, most = least ? VX_AXIS_MAX + 1 : 0;
    for (int axis = 0; axis < 3; axis++)
        if (!is_within(shape[axis], least, most)) return false;
    return true;
}

static bool run_is_whole(const struct vx_message_run *run, size_t bytes)
{
    if (bytes < offsetof(struct vx_message_run, items)) return false;
    if (!is_within(run->items_count, 1, VX_BATCH_ITEMS_MAX)) return false;
    if (bytes != vx_message_run_bytes(run->items_count)) return false;
    for (i32 i = 0; i < run->items_count; i++)
        if (!shape_is_sound(run->items[i].shape)) return false;
    return true;
}

/* ------- places of outputs ------- */

static bool sizes_are_sound(const struct vx_message_sizes *sizes)
{
    i64 before = -1;
    for (i32 i = 0; i < sizes->items_count; i++) {
        const struct vx_sizes_item *item = &sizes->items[i];
        if (!is_within(item->item, before + 1, VX_BATCH_ITEMS_MAX - 1)) return false;
        before = item->item;
        for (i32 o = 0; o < VX_OUTPUTS_MAX; o++)
            if (!is_within(item->rows[o], 0, VX_VOXELS_MAX)) return false;
    }
    return true;
}

static bool sizes_is_whole(const struct vx_message_sizes *sizes, size_t bytes)
{
    return bytes >= offsetof(struct vx_message_sizes, items) &&
           is_within(sizes->items_count, 1, VX_BATCH_ITEMS_MAX) &&
           bytes == vx_message_sizes_bytes(sizes->items_count) && sizes_are_sound(sizes);
}

static bool place_is_sound(const struct vx_place *place)
{
    bool in_region = vx_place_in_region(place);
    return is_within(place->kind, VX_PLACE_NONE, VX_PLACE_DEVICE) &&
           is_within(place->region, in_region, in_region ? VX_REGIONS_MAX : 0);
}

static bool places_are_sound(const struct vx_message_places *places)
{
    i64 before = -1;
    for (i32 i = 0; i < places->items_count; i++) {
        const struct vx_places_item *item = &places->items[i];
        if (!is_within(item->item, before + 1, VX_BATCH_ITEMS_MAX - 1)) return false;
        before = item->item;
        if (!is_within(item->refused, 0, 1)) return false;
        for (i32 o = 0; o < VX_OUTPUTS_MAX; o++)
            if (!place_is_sound(&item->outputs[o])) return false;
    }
    return true;
}

static bool places_is_whole(const struct vx_message_places *places, size_t bytes)
{
    return bytes >= offsetof(struct vx_message_places, items) &&
           is_within(places->items_count, 1, VX_BATCH_ITEMS_MAX) &&
           bytes == vx_message_places_bytes(places->items_count) &&
           places_are_sound(places);
}

/* ------- texts and signatures ------- */

static bool has_end(const char *text, size_t bytes)
{
    return memchr(text, 0, bytes) != NULL;
}

static bool policy_is_sound(const struct vx_queue_policy *policy)
{
    return is_within(policy->default_timeout_us, 0, TIME_US_MAX) &&
           is_within(policy->max_queue_size, 0, INT32_MAX);
}

static bool batching_is_sound(const struct vx_batching *batching)
{
    for (i32 level = 0; level <= VX_PRIORITY_LEVELS_MAX; level++)
        if (!policy_is_sound(&batching->policies[level])) return false;
    return is_within(batching->voxels_max, 0, VX_VOXELS_MAX) &&
           is_within(batching->pairs_max, 0, PAIRS_MAX) &&
           is_within(batching->delay_us, 0, TIME_US_MAX) &&
           is_within(batching->requests_max, 1, VX_BATCH_ITEMS_MAX) &&
           is_within(batching->priority_levels, 0, VX_PRIORITY_LEVELS_MAX) &&
           is_within(batching->default_priority_level, 0, batching->priority_levels);
}

/* The shape of an output, and where it lies. */
static bool output_is_sound(const struct vx_signature *signature,
                            const struct vx_output *output)
{
    bool dense = output->set == VX_OUTPUT_DENSE, coords = output->set > 0;
    i64 product = 1;
    if (!is_within(output->set, VX_OUTPUT_DENSE, VX_SETS_MAX - 1)) return false;
    if (!is_within(output->dims_count, dense, dense ? VX_OUTPUT_DIMS_MAX : 0))
        return false;
    for (i32 d = 0; d < output->dims_count; d++) {
        if (!is_within(output->dims[d], 1, VX_DENSE_NUMBERS_MAX)) return false;
        product *= output->dims[d];
        if (product > VX_DENSE_NUMBERS_MAX) return false;
    }
    if (dense && product != output->channels) return false;
    if (!dense && !is_within(output->channels, 1, VX_CHANNELS_MAX)) return false;
    return is_within(output->coords, coords ? 0 : -1,
                     coords ? signature->outputs_count - 1 : -1);
}

static bool axes_are_sound(const char axes[4])
{
    return has_end(axes, 4) && (!*axes || vx_axes_are_order(axes));
}

static bool signature_is_sound(const struct vx_signature *signature)
{
    if (!has_end(signature->coords_name, VX_NAME_BYTES)) return false;
    if (!axes_are_sound(signature->axes)) return false;
    if (!has_end(signature->feats_name, VX_NAME_BYTES)) return false;
    if (!is_within(signature->feats_channels, 1, VX_CHANNELS_MAX)) return false;
    if (!is_within(signature->outputs_count, 0, VX_OUTPUTS_MAX)) return false;
    for (i32 o = 0; o < signature->outputs_count; o++) {
        const struct vx_output *output = &signature->outputs[o];
        if (!has_end(output->name, VX_NAME_BYTES)) return false;
        if (!vx_dtype_bytes(output->dtype)) return false;
        if (!has_end(output->stride, VX_SET_STRIDE_BYTES)) return false;
        if (!output_is_sound(signature, output)) return false;
    }
    return shape_is_sound(signature->shape) &&
           is_within(signature->voxels_max, 0, VX_VOXELS_MAX) &&
           is_within((i64)signature->voxels_bound, 0, VX_BOUND_COUNT - 1) &&
           is_within(signature->samples_max, 1, VX_SAMPLE_MAX + 1) &&
           is_within(signature->fp8_layers, 0, VX_LAYERS_MAX) &&
           signature->weights_bytes >= 0 && batching_is_sound(&signature->batching);
}

static bool loaded_is_sound(const struct vx_message_loaded *loaded)
{
    if (!has_end(loaded->why.text, VX_WHY_BYTES)) return false;
    return loaded->code != VX_CODE_OK || signature_is_sound(&loaded->signature);
}

static bool up_is_sound(const struct vx_message_up *up)
{
    return has_end(up->stats.device_name, VX_NAME_BYTES) &&
           has_end(up->stats.gpu.uuid, VX_UUID_BYTES);
}

static bool ends_is_sound(const struct vx_message_ends *ends)
{
    return has_end(ends->why.text, VX_WHY_BYTES);
}

/* ------- regions ------- */

static bool region_is_one(i32 region)
{
    return is_within(region, 1, VX_REGIONS_MAX);
}

static bool map_is_sound(const struct vx_message_map *map)
{
    if (!region_is_one(map->region) || !is_within(map->on_device, 0, 1)) return false;
    return map->bytes > 0 && map->bytes <= (u64)INT64_MAX &&
           map->offset <= (u64)INT64_MAX - map->bytes;
}

static bool mapped_is_sound(const struct vx_message_mapped *mapped)
{
    return region_is_one(mapped->region) && has_end(mapped->why.text, VX_WHY_BYTES);
}

/* ------- records ------- */

static bool message_is_whole(const union vx_message *message, size_t bytes)
{
    if (bytes < sizeof message->head) return false;
    switch ((enum vx_message_kind)message->head.kind) {
    case VX_MESSAGE_LOAD: return bytes == sizeof message->load;
    case VX_MESSAGE_RUN: return run_is_whole(&message->run, bytes);
    case VX_MESSAGE_PLACES: return places_is_whole(&message->places, bytes);
    case VX_MESSAGE_SIZES: return sizes_is_whole(&message->sizes, bytes);
    case VX_MESSAGE_DONE: return done_is_whole(&message->done, bytes);
    case VX_MESSAGE_UP:
    case VX_MESSAGE_STATED:
        return bytes == sizeof message->up && up_is_sound(&message->up);
    case VX_MESSAGE_PROGRESS: return bytes == sizeof message->progress;
    case VX_MESSAGE_LOADED:
        return bytes == sizeof message->loaded && loaded_is_sound(&message->loaded);
    case VX_MESSAGE_ENDS:
        return bytes == sizeof message->ends && ends_is_sound(&message->ends);
    case VX_MESSAGE_MAP:
        return bytes == sizeof message->map && map_is_sound(&message->map);
    case VX_MESSAGE_UNMAP:
        return bytes == sizeof message->unmap && region_is_one(message->unmap.region);
    case VX_MESSAGE_MAPPED:
        return bytes == sizeof message->mapped && mapped_is_sound(&message->mapped);
    case VX_MESSAGE_WORKING:
    case VX_MESSAGE_UNLOAD:
    case VX_MESSAGE_STATS: return bytes == sizeof message->head;
    }
    return false;
}

/* A message that the receiver would refuse is the sender's bug: the sender asserts it. */
static bool is_to_be_sent(const struct vx_message_head *message, size_t bytes)
{
    return bytes >= sizeof *message && bytes <= VX_MESSAGE_BYTES &&
           message_is_whole((const union vx_message *)(const void *)message, bytes);
}

vx_status vx_channel_send(int fd, const struct vx_message_head *message, size_t bytes)
{
    VX_ASSERT(is_to_be_sent(message, bytes));
    ssize_t sent;
    do sent = send(fd, message, bytes, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    VX_ENSURE(sent == (ssize_t)bytes, UNAVAILABLE,
              "the other end of the channel does not read");
    return VX_OK;
}

/* Descriptors that may come with a record.  One is right; there is room for more, so that
 * they can be closed. */
#define DESCRIPTORS_MAX 4
union descriptors {
    struct cmsghdr head;
    u8 room[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int))];
};

vx_status vx_channel_send_fd(int fd, const struct vx_message_head *message, size_t bytes,
                             int passed)
{
    VX_ASSERT(is_to_be_sent(message, bytes) && passed >= 0);
    union descriptors control = {.head = {0}};
    struct iovec piece = {(void *)(uintptr_t)message, bytes};
    struct msghdr record = {.msg_iov = &piece,
                            .msg_iovlen = 1,
                            .msg_control = &control,
                            .msg_controllen = CMSG_SPACE(sizeof passed)};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&record);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof passed);
    memcpy(CMSG_DATA(rights), &passed, sizeof passed);
    ssize_t sent;
    do sent = sendmsg(fd, &record, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    VX_ENSURE(sent == (ssize_t)bytes, UNAVAILABLE,
              "the other end of the channel does not read");
    return VX_OK;
}

/* One record; 0 = a non-blocking end has nothing to read. */
static vx_status record_receive(int fd, struct msghdr *record, size_t *bytes)
{
    ssize_t got;
    /* A peer that dies with unread messages resets the socket once; the messages that it
     * sent can be read after that. */
    bool was_reset = false, again;
    *bytes = 0;
    do {
        got = recvmsg(fd, record, MSG_CMSG_CLOEXEC);
        again = got < 0 && (errno == EINTR || (errno == ECONNRESET && !was_reset));
        was_reset = again && errno == ECONNRESET;
    } while (again);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return VX_OK;
    VX_ENSURE(got > 0, UNAVAILABLE, "the other end of the channel is closed");
    *bytes = (size_t)got;
    return VX_OK;
}

/* Without room for descriptors the system discards them and sets MSG_CTRUNC. */
vx_status vx_channel_receive(int fd, union vx_message *message, size_t *bytes)
{
    struct iovec piece = {message, sizeof *message};
    struct msghdr record = {.msg_iov = &piece, .msg_iovlen = 1};
    VX_TRY(record_receive(fd, &record, bytes));
    if (!*bytes) return VX_OK;
    bool whole = !(record.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) &&
                 message_is_whole(message, *bytes);
    if (!whole) *bytes = 0;
    VX_ENSURE(whole, INTERNAL, "a channel message is malformed");
    return VX_OK;
}

/* Extracts the descriptors that came with the record; returns their number. */
static i32 descriptors_take(struct msghdr *record, int fds[DESCRIPTORS_MAX])
{
    i32 count = 0;
    for (struct cmsghdr *it = CMSG_FIRSTHDR(record); it; it = CMSG_NXTHDR(record, it)) {
        if (it->cmsg_level != SOL_SOCKET || it->cmsg_type != SCM_RIGHTS) continue;
        size_t bytes = it->cmsg_len - CMSG_LEN(0);
        for (size_t at = 0; at + sizeof *fds <= bytes && count < DESCRIPTORS_MAX;
             at += sizeof *fds)
            memcpy(&fds[count++], CMSG_DATA(it) + at, sizeof *fds);
    }
    return count;
}

vx_status vx_channel_receive_fd(int fd, union vx_message *message, size_t *bytes,
                                int *passed)
{
    union descriptors control = {.head = {0}};
    struct iovec piece = {message, sizeof *message};
    struct msghdr record = {.msg_iov = &piece,
                            .msg_iovlen = 1,
                            .msg_control = &control,
                            .msg_controllen = sizeof control.room};
    int fds[DESCRIPTORS_MAX] = {-1, -1, -1, -1};
    *passed = -1;
    VX_TRY(record_receive(fd, &record, bytes));
    if (!*bytes) return VX_OK;
    i32 count = descriptors_take(&record, fds);
    bool whole = !(record.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) &&
                 message_is_whole(message, *bytes);
    bool brings =
        whole && message->head.kind == VX_MESSAGE_MAP && !message->map.on_device;
    if (whole && count == brings) {
        *passed = fds[0];
        return VX_OK;
    }
    for (i32 i = 0; i < count; i++) (void)close(fds[i]);
    *bytes = 0;
    VX_FAIL(INTERNAL, "a channel message is malformed");
}
