/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/network/network_batching.h"

#include "engine/base/process/check.h"
#include "engine/base/text/sentence.h"
#include "engine/network/network_layers.h"

#include <string.h>

/* Most time that a batch may wait for more requests: nobody waits longer for batching. */
#define DELAY_US_MAX (10 * 1000 * 1000)
/* Most time that a request may wait in a queue: a day. */
#define TIMEOUT_US_MAX INT64_C(86400000000)
/* Most rows times the offsets of the largest kernel. */
#define PAIRS_MAX (INT64_C(343) * VX_VOXELS_MAX)

#define WORDS(...)                                                                       \
    (&(struct vx_words){(const char *const[]){__VA_ARGS__},                              \
                        sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)})

/* An optional integer: when the key is missing, *out keeps its value. */
struct number {
    const char *key;
    i64 min, max;
    i64 *out;
};

static vx_status read_numbers(const struct vx_json *object, const struct number *numbers,
                              size_t count, struct vx_why *why)
{
    for (size_t i = 0; i < count; i++) {
        const struct number *one = &numbers[i];
        const struct vx_json *value = vx_json_find(object, one->key);
        if (value) VX_TRY(vx_json_read_i64(value, one->min, one->max, why, one->out));
    }
    return VX_OK;
}

static vx_status parse_action(const struct vx_json *object, struct vx_why *why,
                              bool *delay)
{
    const struct vx_json *value = vx_json_find(object, "timeout_action");
    const char *text;
    if (!value) return VX_OK;
    VX_TRY(vx_json_read_text(value, why, &text));
    *delay = !strcmp(text, "DELAY");
    VX_ENSURE_WHY(*delay || !strcmp(text, "REJECT"), why, INVALID_ARGUMENT,
                  "a queue policy has an unknown timeout_action",
                  "line %d: \"timeout_action\": expected \"REJECT\" or \"DELAY\", got "
                  "\"%.*s\"",
                  value->line, VX_NAME_SHOWN, text);
    return VX_OK;
}

static vx_status parse_policy(const struct vx_json *object, struct vx_why *why,
                              struct vx_queue_policy *policy)
{
    *policy = (struct vx_queue_policy){0};
    VX_TRY(vx_network_check_keys(object,
                                 WORDS("timeout_action", "default_timeout_microseconds",
                                       "allow_timeout_override", "max_queue_size"),
                                 why));
    const struct number numbers[] = {
        {"default_timeout_microseconds", 0, TIMEOUT_US_MAX, &policy->default_timeout_us},
        {"max_queue_size", 0, INT32_MAX, &policy->max_queue_size},
    };
    VX_TRY(read_numbers(object, numbers, VX_COUNT(numbers), why));
    const struct vx_json *value = vx_json_find(object, "allow_timeout_override");
    if (value) VX_TRY(vx_json_read_bool(value, why, &policy->allow_timeout_override));
    return parse_action(object, why, &policy->timeout_delay);
}

/* Reads a level from a key, "1" to the number of levels: no sign, no leading zero. */
static vx_status policy_level(const struct vx_json *member, i32 levels,
                              struct vx_why *why, i32 *level)
{
    const char *key = member->key;
    bool digit = key[0] >= '1' && key[0] <= '9' && !key[1];
    *level = digit ? key[0] - '0' : 0;
    _Static_assert(VX_PRIORITY_LEVELS_MAX <= 9, "one digit");
    VX_ENSURE_WHY(*level >= 1 && *level <= levels, why, INVALID_ARGUMENT,
                  "priority_queue_policy has a key that is not a level",
                  "line %d: \"priority_queue_policy\": expected a level from 1 to "
                  "priority_levels, which is %d, got \"%.*s\"",
                  member->line, levels, VX_NAME_SHOWN, key);
    return VX_OK;
}

static vx_status parse_policies(const struct vx_json *object, struct vx_why *why,
                                struct vx_batching *batching)
{
    const struct vx_json *value = vx_json_find(object, "default_queue_policy");
    if (value) VX_TRY(parse_policy(value, why, &batching->policies[0]));
    for (i32 level = 1; level <= VX_PRIORITY_LEVELS_MAX; level++)
        batching->policies[level] = batching->policies[0];
    value = vx_json_find(object, "priority_queue_policy");
    if (!value) return VX_OK;
    VX_TRY(vx_json_check_kind(value, VX_JSON_OBJECT, why));
    VX_JSON_EACH(member, value)
    {
        i32 level;
        VX_TRY(policy_level(member, batching->priority_levels, why, &level));
        VX_TRY(parse_policy(member, why, &batching->policies[level]));
    }
    return VX_OK;
}

/* As in Triton: the number of levels, and the level of a request that sets none. */
static vx_status parse_levels(const struct vx_json *object, struct vx_why *why,
                              struct vx_batching *batching)
{
    i64 levels = 0, level = 0;
    const struct number number = {"priority_levels", 0, VX_PRIORITY_LEVELS_MAX, &levels};
    const struct vx_json *value = vx_json_find(object, "default_priority_level");
    VX_TRY(read_numbers(object, &number, 1, why));
    if (levels) {
        VX_TRY(
            vx_network_need(object, "default_priority_level", VX_JSON_I64, why, &value));
        VX_TRY(vx_json_read_i64(value, 1, levels, why, &level));
    } else {
        VX_ENSURE_WHY(!value, why, INVALID_ARGUMENT,
                      "default_priority_level without priority_levels",
                      "line %d: \"default_priority_level\" needs \"priority_levels\", "
                      "which is missing",
                      value ? value->line : 0);
    }
    batching->priority_levels = (i32)levels;
    batching->default_priority_level = (i32)level;
    return VX_OK;
}

static vx_status parse_batching(const struct vx_json *object, struct vx_why *why,
                                struct vx_batching *batching)
{
    VX_TRY(vx_network_check_keys(
        object,
        WORDS("voxels_max", "pairs_max", "delay_us", "requests_max", "priority_levels",
              "default_priority_level", "default_queue_policy", "priority_queue_policy"),
        why));
    i64 requests = batching->requests_max;
    const struct number numbers[] = {
        {"voxels_max", 1, VX_VOXELS_MAX, &batching->voxels_max},
        {"pairs_max", 1, PAIRS_MAX, &batching->pairs_max},
        {"delay_us", 0, DELAY_US_MAX, &batching->delay_us},
        {"requests_max", 1, VX_BATCH_ITEMS_MAX, &requests},
    };
    VX_TRY(read_numbers(object, numbers, VX_COUNT(numbers), why));
    batching->requests_max = (i32)requests;
    VX_TRY(parse_levels(object, why, batching));
    return parse_policies(object, why, batching);
}

/* "sets": {"LAYER": rows}: the most rows of the set on which that layer's result lies. */
static vx_status parse_sets(struct vx_network *network, const struct vx_json *object,
                            struct vx_why *why)
{
    char nearest[VX_NEAREST_BYTES];
    VX_TRY(vx_json_check_kind(object, VX_JSON_OBJECT, why));
    VX_JSON_EACH(member, object)
    {
        i32 layer = vx_network_find(network, member->key);
        VX_ENSURE_WHY(
            layer >= 0, why, INVALID_ARGUMENT, "a limit of a set names no layer",
            "line %d: \"sets\": unknown layer \"%.*s\"%s", member->line, VX_NAME_SHOWN,
            member->key,
            vx_network_nearest(network, network->layers_count, member->key, nearest));
        struct vx_set *set = &network->sets[network->layers[layer].set];
        VX_ENSURE_WHY(set->layer >= 0, why, INVALID_ARGUMENT,
                      "a limit of a set names the set of the request",
                      "line %d: \"sets\": \"%.*s\" lies on the voxels of the request, "
                      "which voxels_max limits",
                      member->line, VX_NAME_SHOWN, member->key);
        VX_ENSURE_WHY(
            !set->rows_max, why, INVALID_ARGUMENT, "two limits of one set",
            "line %d: \"sets\": \"%.*s\" lies on a set that has a limit already",
            member->line, VX_NAME_SHOWN, member->key);
        VX_TRY(vx_json_read_i64(member, 1, VX_VOXELS_MAX, why, &set->rows_max));
    }
    return VX_OK;
}

/* The most bytes of a gRPC message, and so of an answer. */
#define ANSWER_BYTES_MAX INT32_MAX

/* Unless the author says more, for clients with shared memory, nothing is computed that no message
 * has room for: so many samples of the smallest dense output. */
static i32 samples_default(const struct vx_network *network)
{
    i64 samples = 0;
    for (i32 o = 0; o < network->outputs_count; o++) {
        const struct vx_network_output *output = &network->outputs[o];
        const struct vx_layer *layer = &network->layers[output->layer];
        if (layer->op != VX_OP_TO_DENSE) continue;
        i64 bytes = (i64)layer->channels * (i64)vx_dtype_bytes(output->dtype);
        for (int axis = 0; axis < 3; axis++) bytes *= layer->shape[axis];
        if (ANSWER_BYTES_MAX / bytes > samples) samples = ANSWER_BYTES_MAX / bytes;
    }
    if (!samples || samples > VX_SAMPLE_MAX + 1) return VX_SAMPLE_MAX + 1;
    return (i32)samples;
}

/* "samples": how many a request may have that wants a dense output.  Nothing else has a size
 * that follows from the numbers of samples, so that elsewhere the limit would bound nothing. */
static vx_status parse_samples(struct vx_network *network, const struct vx_json *value,
                               struct vx_why *why)
{
    i64 samples;
    bool dense = false;
    for (i32 i = 0; i < network->layers_count; i++)
        dense = dense || network->layers[i].op == VX_OP_TO_DENSE;
    VX_ENSURE_WHY(dense, why, INVALID_ARGUMENT, "a limit of samples bounds nothing",
                  "line %d: \"samples\": expected a network with a to_dense, whose size "
                  "it limits",
                  value->line);
    VX_TRY(vx_json_read_i64(value, 1, VX_SAMPLE_MAX + 1, why, &samples));
    network->samples_max = (i32)samples;
    return VX_OK;
}

vx_status vx_network_parse_limits(struct vx_network *network, const struct vx_json *root,
                                  struct vx_why *why)
{
    const struct vx_json *limits = vx_json_find(root, "limits"), *value = NULL;
    network->voxels_max = VX_NETWORK_VOXELS_DEFAULT;
    network->samples_max = samples_default(network);
    if (limits) {
        VX_TRY(
            vx_network_check_keys(limits, WORDS("voxels_max", "samples", "sets"), why));
        value = vx_json_find(limits, "sets");
        if (value) VX_TRY(parse_sets(network, value, why));
        value = vx_json_find(limits, "samples");
        if (value) VX_TRY(parse_samples(network, value, why));
        value = vx_json_find(limits, "voxels_max");
    }
    if (value)
        VX_TRY(vx_json_read_i64(value, 1, VX_VOXELS_MAX, why, &network->voxels_max));
    network->voxels_max_said = value != NULL;

    network->batching = (struct vx_batching){
        .voxels_max = network->voxels_max,
        .requests_max = VX_BATCH_ITEMS_MAX,
    };
    for (i32 level = 0; level <= VX_PRIORITY_LEVELS_MAX; level++)
        network->batching.policies[level].allow_timeout_override = true;
    const struct vx_json *batching = vx_json_find(root, "batching");
    if (!batching) return VX_OK;
    return parse_batching(batching, why, &network->batching);
}
