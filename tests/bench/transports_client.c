/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/transports.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/clock.h"

#include <stdio.h>
#include <string.h>

/* Overwriting and reading device memory is work for the device from a process other than the
 * worker, and the next request waits while the device switches between them.  So only one
 * answer in this many is checked on a device, and the requests behind it count like any other. */
#define DEVICE_CHECK_EACH 32

/* The places of the tensors for one transport, and the request with these places. */
struct link {
    const struct transports_options *options;
    struct subject *subject;
    struct voxel_client *client;
    struct voxel_region *region;
    struct device_memory *device;
    u8 *memory; /* of the outputs, or of all tensors; NULL on a device */
    u8 *back;   /* a copy of the device's memory */
    size_t output_at;
    struct voxel_tensor inputs[2];
    struct voxel_place place;
    struct voxel_request request;
};

static bool skip(struct samples *samples, const char *why)
{
    snprintf(samples->skipped, sizeof samples->skipped, "%s", why);
    return false;
}

/* Coordinates, features and output of one region, one behind the other. */
static void link_place(struct link *link)
{
    const struct subject *subject = link->subject;
    for (int i = 0; i < 2; i++) link->inputs[i].region = link->region;
    link->inputs[1].region_offset = transports_aligned(subject->coords_bytes);
    link->output_at =
        link->inputs[1].region_offset + transports_aligned(subject->feats_bytes);
    link->place.region = link->region;
    link->place.region_offset = link->output_at;
}

static size_t link_bytes(const struct subject *subject)
{
    return transports_aligned(subject->coords_bytes) +
           transports_aligned(subject->feats_bytes) + subject->output_bytes;
}

static bool link_open_shm(struct link *link, struct samples *samples)
{
    struct voxel_error error;
    const struct subject *subject = link->subject;
    if (voxel_region_open(link->client, link_bytes(subject), &link->region, &error)) {
        samples->failed = true;
        return skip(samples, error.text);
    }
    link_place(link);
    link->memory = voxel_region_memory(link->region);
    memcpy(link->memory, subject->coords, subject->coords_bytes);
    memcpy(link->memory + link->inputs[1].region_offset, subject->feats,
           subject->feats_bytes);
    return true;
}

static bool link_open_device(struct link *link, struct samples *samples)
{
    struct voxel_error error;
    struct voxel_device_memory shared;
    const struct subject *subject = link->subject;
    link->device = device_memory_open(link->options->device, link_bytes(subject), &shared,
                                      samples->skipped, sizeof samples->skipped);
    /* Only a CPU may have no device memory. */
    samples->failed = !link->device && strcmp(link->options->device, "cpu") != 0;
    if (!link->device) return false;
    if (voxel_region_open_device(link->client, &shared, &link->region, &error)) {
        samples->failed = true;
        return skip(samples, error.text);
    }
    link_place(link);
    link->back = vx_alloc_aligned(transports_aligned(subject->output_bytes));
    transports_need(link->back != NULL, "memory", "none for the answer");
    device_memory_write(link->device, 0, subject->coords, subject->coords_bytes);
    device_memory_write(link->device, link->inputs[1].region_offset, subject->feats,
                        subject->feats_bytes);
    return true;
}

static bool link_open_wire(struct link *link)
{
    link->memory = vx_alloc_aligned(transports_aligned(link->subject->output_bytes));
    transports_need(link->memory != NULL, "memory", "none for the answer");
    link->place.memory = link->memory;
    return true;
}

static bool link_open(struct link *link, enum transport transport,
                      struct samples *samples)
{
    struct voxel_error error;
    struct subject *subject = link->subject;
    const char *address = transport == TRANSPORT_TCP || !link->options->unix_socket
                              ? link->options->tcp
                              : link->options->unix_socket;
    if (transport == TRANSPORT_UNIX) address = link->options->unix_socket;
    if (!address) return skip(samples, "no address was given");
    transports_need(!voxel_client_open(address, NULL, &link->client, &error), address,
                    error.text);
    link->inputs[0] = voxel_tensor_make(subject->coords_name, VOXEL_INT32,
                                        subject->voxels, 4, subject->coords);
    link->inputs[1] = voxel_tensor_make(subject->feats_name, VOXEL_FP16, subject->voxels,
                                        subject->channels, subject->feats);
    link->place =
        (struct voxel_place){.output = subject->output, .bytes = subject->output_bytes};
    link->request = (struct voxel_request){.model = subject->model,
                                           .inputs = link->inputs,
                                           .inputs_count = 2,
                                           .places = &link->place,
                                           .places_count = 1};
    if (transport == TRANSPORT_SHM) return link_open_shm(link, samples);
    if (transport == TRANSPORT_DEVICE) return link_open_device(link, samples);
    return link_open_wire(link);
}

static void link_close(struct link *link)
{
    bool wire = !link->region;
    voxel_region_close(link->region);
    if (link->device) device_memory_close(link->device);
    if (wire) vx_free(link->memory);
    vx_free(link->back);
    voxel_client_close(link->client);
}

static void spoil(struct link *link)
{
    size_t bytes = link->subject->output_bytes;
    if (link->memory)
        transports_spoil(link->memory + link->output_at, bytes);
    else
        device_memory_fill(link->device, link->output_at, 0xa5, bytes);
}

static bool right(struct link *link)
{
    const u8 *output = link->back;
    size_t bytes = link->subject->output_bytes;
    if (link->memory)
        output = link->memory + link->output_at;
    else
        device_memory_read(link->device, link->output_at, link->back, bytes);
    return memcmp(output, link->subject->expected, bytes) == 0;
}

void client_measure(const struct transports_options *options, struct subject *subject,
                    enum transport transport, struct samples *samples)
{
    struct link link = {.options = options, .subject = subject};
    struct voxel_answer *answer;
    struct voxel_error error;
    bool open = link_open(&link, transport, samples);
    i64 begin = vx_clock_ns();
    for (i64 done = 0; open && transports_more(options, done, begin); done++) {
        bool look = !link.device || done % DEVICE_CHECK_EACH == 0;
        if (look) spoil(&link);
        i64 started = vx_clock_ns();
        enum voxel_code code = voxel_infer(link.client, &link.request, &answer, &error);
        voxel_answer_free(answer);
        i64 ended = vx_clock_ns();
        if (code) {
            samples->failed = true;
            skip(samples, error.text);
            break;
        }
        samples->wrong += look && !right(&link);
        transports_add(options, samples, done, ended - started);
    }
    link_close(&link);
}
