/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/load.h"

#include "clients/c/memory.h"
#include "clients/cli/convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <grpc/slice.h>

#define INFER_METHOD "/inference.GRPCInferenceService/ModelInfer"
#define ECHO_METHOD  "/voxel.Echo/Echo"
#define RES_MAX      1200

struct load_memory {
    struct load_memory *next;
};

void *load_take(struct load_work *work, size_t bytes)
{
    /* A header as long as a cache line, so that the memory behind it is aligned. */
    struct load_memory *memory = voxel_memory_take_bytes(bytes + 64);
    if (!memory) {
        fprintf(stderr, "bench_load: no memory for %zu bytes\n", bytes);
        exit(2);
    }
    pthread_mutex_lock(&work->lock);
    memory->next = work->memory;
    work->memory = memory;
    pthread_mutex_unlock(&work->lock);
    return (uint8_t *)memory + 64;
}

bool load_body_pack(struct load_work *work, const struct voxel_request *request,
                    struct load_body *body)
{
    struct voxel_message message;
    struct voxel_error error;
    if (voxel_message_pack(request, &message, &error)) {
        fprintf(stderr, "bench_load: %s\n", error.text);
        return false;
    }
    body->slices_count = 0;
    body->bytes = message.bytes;
    for (size_t i = 0; i < message.pieces_count; i++) {
        const struct voxel_span *piece = &message.pieces[i];
        const uint8_t *data = piece->data;
        if (!message.borrowed[i])
            data = memcpy(load_take(work, piece->bytes), piece->data, piece->bytes);
        body->slices[body->slices_count++] =
            grpc_slice_from_static_buffer(data, piece->bytes);
    }
    voxel_message_fini(&message);
    return true;
}

/* A geometry of a shell: turned, moved, and with `n` of its `all` voxels. */
struct turn {
    int32_t axes[3], signs[3], moves[3];
};

static struct turn turn_make(int64_t geometry, struct voxels_random *random)
{
    static const int32_t orders[6][3] = {{1, 2, 3}, {2, 3, 1}, {3, 1, 2},
                                         {1, 3, 2}, {3, 2, 1}, {2, 1, 3}};
    struct turn turn;
    for (int i = 0; i < 3; i++) {
        turn.axes[i] = orders[geometry % 6][i];
        turn.signs[i] = geometry / 6 >> i & 1 ? -1 : 1;
        turn.moves[i] = voxels_between(random, -2000, 2000);
    }
    /* No two geometries lie in the same place, whatever numbers were drawn. */
    turn.moves[0] = (int32_t)(geometry % 100000);
    return turn;
}

static int32_t *geometry_make(struct load_work *work, const int32_t *shell,
                              const int64_t counts[2], int64_t geometry)
{
    int64_t all = counts[0], n = counts[1], used = 0;
    struct voxels_random random = {(uint64_t)(work->options->seed + 1) * 7919 +
                                   (uint64_t)geometry};
    struct turn turn = turn_make(geometry, &random);
    int32_t *coords = load_take(work, (size_t)n * 16 + 16);
    for (int64_t row = 0; row < all && used < n; row++) {
        if (voxels_next(&random) % (uint64_t)(all - row) >= (uint64_t)(n - used))
            continue;
        int32_t *out = coords + 4 * used++;
        out[0] = 0;
        for (int i = 0; i < 3; i++)
            out[i + 1] = turn.signs[i] * shell[row * 4 + turn.axes[i]] + turn.moves[i];
    }
    return coords;
}

static void *feats_make(struct load_work *work, int64_t n, int64_t variant)
{
    int64_t cells = n * work->options->channels_in;
    bool wide = strcmp(work->options->dtype, "fp32") == 0;
    struct voxels_random random = {(uint64_t)variant * 104729 + (uint64_t)n};
    uint8_t *feats = load_take(work, (size_t)cells * (wide ? 4 : 2) + 16);
    for (int64_t i = 0; i < cells; i++) {
        float value = voxels_unit(&random);
        uint16_t half = convert_to_half(value);
        memcpy(feats + (size_t)i * (wide ? 4 : 2), wide ? (void *)&value : (void *)&half,
               wide ? 4 : 2);
    }
    return feats;
}

static enum voxel_type feats_type(const struct load_options *options)
{
    return strcmp(options->dtype, "fp32") == 0 ? VOXEL_FP32 : VOXEL_FP16;
}

/* shell:N, res:R.  The requests of one kind: every geometry with every variant of feats. */
static bool shell_open(struct load_work *work, struct load_kind *kind, int32_t res,
                       int64_t n)
{
    const struct load_options *options = work->options;
    int64_t all = voxels_shell(res, NULL);
    int32_t *shell = load_take(work, (size_t)all * 16);
    voxels_shell(res, shell);
    if (n == 0) n = all;
    for (int64_t v = 0; v < options->feats; v++) {
        void *feats = feats_make(work, n, v);
        for (int64_t g = 0; g < options->geometries; g++) {
            struct load_request *one =
                &work->requests[kind->first + g * options->feats + v];
            const void *coords =
                v == 0 ? geometry_make(work, shell, (int64_t[]){all, n}, g)
                       : work->requests[kind->first + g * options->feats].inputs[0].data;
            one->voxels = n;
            one->inputs[0] = voxel_tensor_make("coords", VOXEL_INT32, n, 4, coords);
            one->inputs[1] = voxel_tensor_make("feats", feats_type(options), n,
                                               (int32_t)options->channels_in, feats);
            const struct voxel_request request = {.model = options->model,
                                                  .inputs = one->inputs,
                                                  .inputs_count = 2,
                                                  .coords_ref =
                                                      options->refs ? "" : NULL};
            if (!load_body_pack(work, &request, &one->full)) return false;
        }
    }
    return true;
}

/* echo:IN/OUT, for bench_echo: the first 8 bytes say how long the answer shall be. */
static bool echo_open(struct load_work *work, struct load_kind *kind, const char *sizes)
{
    char *end;
    uint64_t in = strtoull(sizes, &end, 10);
    uint64_t out = *end == '/' ? strtoull(end + 1, &end, 10) : 0;
    if (in < 8 || in > 1 << 30 || *end) return false;
    work->method = ECHO_METHOD;
    for (int64_t i = 0; i < kind->count; i++) {
        uint8_t *bytes = load_take(work, in);
        memset(bytes, (int)i + 1, in);
        memcpy(bytes, &out, sizeof out);
        struct load_request *one = &work->requests[kind->first + i];
        one->full.slices[0] = grpc_slice_from_static_buffer(bytes, in);
        one->full.slices_count = 1;
        one->full.bytes = in;
    }
    return true;
}

static bool kind_open(struct load_work *work, struct load_kind *kind)
{
    char *end;
    const char *colon = strchr(kind->name, ':');
    if (!colon) return false;
    if (strncmp(kind->name, "echo:", 5) == 0) return echo_open(work, kind, colon + 1);
    int64_t number = strtoll(colon + 1, &end, 10);
    if (end == colon + 1 || *end || number < 1) return false;
    if (strncmp(kind->name, "res:", 4) == 0 && number >= 2 && number <= RES_MAX)
        return shell_open(work, kind, (int32_t)number, 0);
    if (strncmp(kind->name, "shell:", 6) != 0) return false;
    int32_t res = 2;
    while (res < RES_MAX && voxels_shell(res, NULL) < number)
        res += res < 64 ? 1 : res / 32; /* counting a large shell is slow */
    return res < RES_MAX && shell_open(work, kind, res, number);
}

/* "res:16:3,shell:5000": names and weights.  False when the text is no such list. */
static bool mix_parse(struct load_work *work)
{
    const struct load_options *options = work->options;
    const char *at = options->mix;
    double sum = 0;
    while (*at) {
        size_t bytes = strcspn(at, ",");
        struct load_kind *kind = &work->kinds[work->kinds_count];
        if (work->kinds_count == LOAD_KINDS_MAX || bytes >= sizeof kind->name)
            return false;
        memcpy(kind->name, at, bytes);
        char *colon = strchr(kind->name, ':');
        char *second = colon ? strchr(colon + 1, ':') : NULL;
        double weight = 1;
        if (second) {
            char *end;
            *second = '\0';
            weight = strtod(second + 1, &end);
            if (end == second + 1 || *end || !(weight > 0 && weight < 1e9)) return false;
        }
        kind->weight_sum = sum += weight;
        kind->count = options->geometries * options->feats;
        kind->first = work->kinds_count++ * kind->count;
        at += bytes + (at[bytes] == ',');
    }
    work->requests_count = work->kinds_count * options->geometries * options->feats;
    return work->kinds_count > 0;
}

bool load_work_open(struct load_work *work, const struct load_options *options)
{
    memset(work, 0, sizeof *work);
    work->options = options;
    work->method = INFER_METHOD;
    pthread_mutex_init(&work->lock, NULL);
    bool good = mix_parse(work);
    if (good) {
        size_t bytes = (size_t)work->requests_count * sizeof *work->requests;
        work->requests = memset(load_take(work, bytes), 0, bytes);
    }
    for (int32_t i = 0; good && i < work->kinds_count; i++)
        good = kind_open(work, &work->kinds[i]);
    if (!good)
        fprintf(
            stderr,
            "bench_load: --mix: expected a list of res:R, shell:N or echo:IN/OUT, each "
            "with :WEIGHT or without, not '%s'\n",
            options->mix);
    return good && load_bad_open(work);
}

void load_work_close(struct load_work *work)
{
    while (work->memory) {
        struct load_memory *next = work->memory->next;
        voxel_memory_give(work->memory);
        work->memory = next;
    }
    pthread_mutex_destroy(&work->lock);
}

const struct load_request *load_work_pick(const struct load_work *work,
                                          struct voxels_random *random)
{
    const struct load_kind *kind = work->kinds;
    if (work->kinds_count > 1) {
        double part = (double)(voxels_next(random) >> 11) / 9007199254740992.0;
        double at = part * work->kinds[work->kinds_count - 1].weight_sum;
        while (kind->weight_sum <= at && kind < &work->kinds[work->kinds_count - 1])
            kind++;
    }
    uint64_t one = voxels_next(random) % (uint64_t)kind->count;
    return &work->requests[kind->first + (int64_t)one];
}

void load_work_learn(struct load_work *work, const struct load_request *request,
                     const char *ref)
{
    struct load_request *one = &work->requests[request - work->requests];
    bool fresh;
    pthread_mutex_lock(&work->lock);
    fresh = strcmp(one->ref, ref) != 0;
    memcpy(one->ref, ref, sizeof one->ref);
    pthread_mutex_unlock(&work->lock);
    if (!fresh) return;
    struct load_body *body = NULL;
    if (ref[0]) {
        const struct voxel_request feats = {.model = work->options->model,
                                            .inputs = &one->inputs[1],
                                            .inputs_count = 1,
                                            .coords_ref = ref};
        body = load_take(work, sizeof *body);
        if (!load_body_pack(work, &feats, body)) body = NULL;
    }
    /* Calls under way may still send the body before: its memory stays. */
    atomic_store_explicit(&one->by_ref, body, memory_order_release);
}
