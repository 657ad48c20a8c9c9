/* SPDX-License-Identifier: Apache-2.0 */
#include "server/models/placement.h"

#include "engine/base/process/check.h"
#include "server/devices/devices.h"

#include <string.h>

/* Bytes of a word that an error shows. */
#define SHOWN_BYTES 64

/* Part of the setting, without the spaces around it. */
struct word {
    const char *text;
    size_t length;
};

static struct word word_trim(const char *text, size_t length)
{
    while (length && text[0] == ' ') text++, length--;
    while (length && text[length - 1] == ' ') length--;
    return (struct word){text, length};
}

/* The word before `separator`.  *rest moves behind it; it is NULL after the last word. */
static struct word word_cut(const char **rest, const char *end, char separator)
{
    const char *begin = *rest;
    const char *at = memchr(begin, separator, (size_t)(end - begin));
    *rest = at ? at + 1 : NULL;
    return word_trim(begin, (size_t)((at ? at : end) - begin));
}

static bool word_is(struct word word, const char *text)
{
    return strlen(text) == word.length && !memcmp(word.text, text, word.length);
}

static int word_shown(struct word word)
{
    return word.length < SHOWN_BYTES ? (int)word.length : SHOWN_BYTES;
}

/* A whole number from 1 to VX_WORKERS_MAX, else 0. */
static i32 word_number(struct word word)
{
    i32 number = 0;
    for (size_t i = 0; i < word.length; i++) {
        if (word.text[i] < '0' || word.text[i] > '9') return 0;
        number = number * 10 + (word.text[i] - '0');
        if (number > VX_WORKERS_MAX) return 0;
    }
    return number;
}

static vx_status parse_model(struct word word, const struct vx_placement *placement,
                             struct vx_why *why, char model[VX_NAME_BYTES])
{
    VX_ENSURE_WHY(word.length > 0 && word.length < VX_NAME_BYTES, why, INVALID_ARGUMENT,
                  "a rule of placement names no model",
                  "placement: expected NAME=DEVICES or NAME=COUNT with a name of 1 to %d "
                  "bytes, got '%.*s'",
                  VX_NAME_BYTES - 1, word_shown(word), word.text);
    memcpy(model, word.text, word.length);
    model[word.length] = '\0';
    for (i32 i = 0; i < placement->rules_count; i++)
        VX_ENSURE_WHY(strcmp(placement->rules[i].model, model) != 0, why,
                      INVALID_ARGUMENT, "two rules of placement for one model",
                      "placement: expected one rule for each model, got two for '%.*s'",
                      word_shown(word), word.text);
    return VX_OK;
}

static bool word_is_device(struct word word)
{
    char name[VX_DEVICE_NAME_BYTES] = "";
    struct vx_device device;
    if (word.length >= sizeof name) return false;
    memcpy(name, word.text, word.length);
    return !vx_device_parse(name, NULL, &device).fault;
}

static vx_status parse_device(struct word word,
                              const struct vx_placement_devices *devices,
                              struct vx_why *why, u32 *workers)
{
    u32 found = 0;
    for (i32 w = 0; w < devices->count; w++)
        if (word_is(word, devices->names[w])) found |= 1u << w;
    if (devices->open && word_is_device(word)) found |= 1;
    *workers |= found;
    VX_ENSURE_WHY(found, why, INVALID_ARGUMENT, "a rule of placement names no device",
                  "placement: expected devices from --device, a number of devices from 1 "
                  "to %d, or all, got '%.*s'",
                  VX_WORKERS_MAX, word_shown(word), word.text);
    return VX_OK;
}

static vx_status parse_rule(struct word word, const struct vx_placement_devices *devices,
                            struct vx_why *why, struct vx_placement *placement)
{
    const char *rest = word.text, *end = word.text + word.length;
    struct word model = word_cut(&rest, end, '=');
    VX_ENSURE_WHY(rest, why, INVALID_ARGUMENT, "a rule of placement has no =",
                  "placement: expected NAME=DEVICES or NAME=COUNT, got '%.*s'",
                  word_shown(word), word.text);
    VX_ENSURE_WHY(placement->rules_count < VX_PLACEMENT_RULES_MAX, why, INVALID_ARGUMENT,
                  "too many rules of placement",
                  "placement: expected at most %d rules, got more",
                  VX_PLACEMENT_RULES_MAX);
    struct vx_placement_rule *rule = &placement->rules[placement->rules_count];
    *rule = (struct vx_placement_rule){0};
    VX_TRY(parse_model(model, placement, why, rule->model));
    struct word where = word_trim(rest, (size_t)(end - rest));
    rule->replicas = word_number(where);
    if (word_is(where, "all"))
        rule->replicas = VX_WORKERS_MAX;
    else if (!rule->replicas)
        while (rest)
            VX_TRY(parse_device(word_cut(&rest, end, ','), devices, why, &rule->workers));
    placement->rules_count++;
    return VX_OK;
}

vx_status vx_placement_parse(const char *text, const struct vx_placement_devices *devices,
                             struct vx_why *why, struct vx_placement *placement)
{
    placement->rules_count = 0;
    const char *rest = text, *end = text + strlen(text);
    while (rest) {
        struct word rule = word_cut(&rest, end, ';');
        if (rule.length) VX_TRY(parse_rule(rule, devices, why, placement));
    }
    return VX_OK;
}

vx_status vx_placement_check(const struct vx_placement *placement,
                             const struct vx_placement_devices *devices,
                             struct vx_why *why)
{
    for (i32 i = 0; i < placement->rules_count && !devices->open; i++) {
        const struct vx_placement_rule *rule = &placement->rules[i];
        const bool all = rule->replicas == VX_WORKERS_MAX;
        VX_ENSURE_WHY(
            all || rule->replicas <= devices->count, why, INVALID_ARGUMENT,
            "a rule of placement wants more devices than there are",
            "placement: expected for '%.60s' at most the %d of --device, or all, "
            "got %d",
            rule->model, devices->count, rule->replicas);
    }
    return VX_OK;
}

u32 vx_placement_pick(const struct vx_placement *placement, const char *model,
                      const struct vx_placement_load *load)
{
    VX_ASSERT(load->count > 0 && load->count <= VX_WORKERS_MAX);
    const struct vx_placement_rule *rule = NULL;
    for (i32 i = 0; i < placement->rules_count; i++) {
        const struct vx_placement_rule *one = &placement->rules[i];
        bool other = !rule && !strcmp(one->model, "*");
        if (other || !strcmp(one->model, model)) rule = one;
    }
    if (rule && rule->workers) return rule->workers;
    i32 replicas = rule ? rule->replicas : load->count;
    u32 picked = 0;
    for (i32 r = 0; r < replicas && r < load->count; r++) {
        i32 best = -1;
        for (i32 w = 0; w < load->count; w++) {
            if (picked & (1u << w)) continue;
            if (best < 0 || load->bytes[w] < load->bytes[best]) best = w;
        }
        picked |= 1u << best;
    }
    return picked;
}
