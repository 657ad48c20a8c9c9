/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/load.h"

#include "clients/c/memory.h"

#include <string.h>

#include <grpc/slice.h>

#define BIT(code) (1u << VOXEL_##code)
/* The shell that bad coordinates are made from, and the number of rows that the giant claims. */
#define RES         16
#define GIANT_ROWS  ((int64_t)1 << 30)
#define RANGE_OUT   (1 << 17)
#define TENSOR_ROOM 128

const char *const load_bad_names[LOAD_BADS] = {
    "expired", "cancelled", "vanished", "giant", "empty", "duplicate", "range", "shape"};
/* OK is right when a deadline or a cancellation came too late. */
const uint32_t load_bad_codes[LOAD_BADS] = {
    BIT(DEADLINE_EXCEEDED) | BIT(OK),
    BIT(CANCELLED) | BIT(OK),
    0,
    BIT(INVALID_ARGUMENT) | BIT(RESOURCE_EXHAUSTED),
    BIT(OK),
    BIT(INVALID_ARGUMENT),
    BIT(INVALID_ARGUMENT),
    BIT(INVALID_ARGUMENT),
};

static void write_tensor(struct voxel_writer *w, const char *name, const char *type,
                         const int64_t shape[2])
{
    uint8_t memory[TENSOR_ROOM];
    struct voxel_writer body = {.out = memory, .room = sizeof memory}, dims = {0};
    for (int i = 0; i < 2; i++) voxel_write_varint(&dims, (uint64_t)shape[i]);
    voxel_write_text(&body, 1, name);
    voxel_write_text(&body, 2, type);
    voxel_write_prefix(&body, 3, dims.used);
    for (int i = 0; i < 2; i++) voxel_write_varint(&body, (uint64_t)shape[i]);
    voxel_write_prefix(w, 5, body.used);
    voxel_write_raw(w, memory, body.used);
}

/* Packed by hand: the library refuses a request whose bytes do not match its shapes. */
static void giant_pack(struct load_work *work)
{
    static const uint8_t few[64];
    const struct load_options *options = work->options;
    struct voxel_writer w = {.out = load_take(work, 1024), .room = 1024};
    bool wide = strcmp(options->dtype, "fp32") == 0;
    voxel_write_text(&w, 1, options->model);
    write_tensor(&w, "coords", "INT32", (int64_t[]){GIANT_ROWS, 4});
    write_tensor(&w, "feats", wide ? "FP32" : "FP16",
                 (int64_t[]){GIANT_ROWS, options->channels_in});
    for (int i = 0; i < 2; i++) {
        voxel_write_prefix(&w, 7, sizeof few);
        voxel_write_raw(&w, few, sizeof few);
    }
    struct load_body *body = &work->bad[BAD_GIANT];
    body->slices[0] = grpc_slice_from_static_buffer(w.out, w.used);
    body->slices_count = 1;
    body->bytes = w.used;
}

struct sample {
    int64_t n;
    int32_t *coords;
    void *feats;
    int32_t channels;
};

static bool sample_pack(struct load_work *work, const struct sample *sample,
                        struct load_body *body)
{
    bool wide = strcmp(work->options->dtype, "fp32") == 0;
    const struct voxel_tensor inputs[2] = {
        voxel_tensor_make("coords", VOXEL_INT32, sample->n, 4, sample->coords),
        voxel_tensor_make("feats", wide ? VOXEL_FP32 : VOXEL_FP16, sample->n,
                          sample->channels, sample->feats),
    };
    const struct voxel_request request = {
        .model = work->options->model, .inputs = inputs, .inputs_count = 2};
    return load_body_pack(work, &request, body);
}

bool load_bad_open(struct load_work *work)
{
    if (work->options->bad <= 0) return true;
    struct sample sample = {.n = voxels_shell(RES, NULL),
                            .channels = (int32_t)work->options->channels_in};
    size_t rows = (size_t)sample.n;
    sample.feats = load_take(work, rows * (size_t)(sample.channels + 1) * 4);
    memset(sample.feats, 0, rows * (size_t)(sample.channels + 1) * 4);

    int32_t *coords[2];
    for (int i = 0; i < 2; i++) {
        coords[i] = load_take(work, rows * 16);
        voxels_shell(RES, coords[i]);
    }
    sample.coords = coords[0];
    sample.channels++;
    if (!sample_pack(work, &sample, &work->bad[BAD_SHAPE])) return false;
    sample.channels--;
    /* Packing borrows the tensors: a change is made in a copy, or before packing. */
    int32_t *twice = coords[1];
    memcpy(twice + 4 * (rows - 1), twice + 4, 16);
    sample.coords = twice;
    if (!sample_pack(work, &sample, &work->bad[BAD_DUPLICATE])) return false;
    int32_t *far = load_take(work, rows * 16);
    voxels_shell(RES, far);
    far[4 * (rows / 2) + 1] = RANGE_OUT;
    sample.coords = far;
    if (!sample_pack(work, &sample, &work->bad[BAD_RANGE])) return false;
    sample.n = 0;
    if (!sample_pack(work, &sample, &work->empty.full)) return false;
    giant_pack(work);
    return true;
}
