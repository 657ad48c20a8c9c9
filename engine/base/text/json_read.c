/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/text/json.h"

#include "engine/base/process/check.h"

#include <stdio.h>
#include <string.h>

#define SHOWN_BYTES 48 /* most bytes of a text in an error sentence */

const struct vx_json *vx_json_find(const struct vx_json *object, const char *key)
{
    VX_ASSERT(object->kind == VX_JSON_OBJECT);
    i32 low = 0, high = object->count;
    while (low < high) {
        i32 middle = low + (high - low) / 2;
        int order = strcmp(key, object->by_key[middle]->key);
        if (order == 0) return object->by_key[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const char *vx_json_kind_name(enum vx_json_kind kind)
{
    static const char *const names[] = {
        [VX_JSON_NULL] = "null",       [VX_JSON_BOOL] = "true or false",
        [VX_JSON_I64] = "an integer",  [VX_JSON_F64] = "a number",
        [VX_JSON_TEXT] = "a text",     [VX_JSON_LIST] = "a list",
        [VX_JSON_OBJECT] = "an object"};
    return names[kind];
}

/* The value as an error sentence shows it. */
static const char *value_show(const struct vx_json *value, char *out, size_t bytes)
{
    switch (value->kind) {
    case VX_JSON_BOOL: return value->boolean ? "true" : "false";
    case VX_JSON_I64: snprintf(out, bytes, "%lld", (long long)value->number); return out;
    case VX_JSON_F64: snprintf(out, bytes, "%.17g", value->real); return out;
    case VX_JSON_TEXT:
        snprintf(out, bytes, "\"%.*s\"", SHOWN_BYTES, value->text);
        return out;
    default: return vx_json_kind_name(value->kind);
    }
}

static vx_status value_fail(const struct vx_json *value, struct vx_why *why,
                            const char *expected)
{
    char shown[SHOWN_BYTES + 3], key[SHOWN_BYTES + 5] = "";
    if (value->key) snprintf(key, sizeof key, "\"%.*s\": ", SHOWN_BYTES, value->key);
    VX_FAIL_WHY(why, INVALID_ARGUMENT, "a JSON value is not what was expected",
                "line %d, column %d: %sexpected %s, got %s", value->line, value->column,
                key, expected, value_show(value, shown, sizeof shown));
}

/* 2^53.  Beyond it a double cannot hold every whole number, so the text may have meant a
 * neighbour of this one. */
#define WHOLE_MAX 9007199254740992.0

bool vx_json_whole(const struct vx_json *value, i64 *number)
{
    if (value->kind == VX_JSON_I64) {
        *number = value->number;
        return true;
    }
    if (value->kind != VX_JSON_F64) return false;
    bool inside = value->real >= -WHOLE_MAX && value->real <= WHOLE_MAX;
    if (!inside || (f64)(i64)value->real != value->real) return false;
    *number = (i64)value->real;
    return true;
}

vx_status vx_json_check_kind(const struct vx_json *value, enum vx_json_kind kind,
                             struct vx_why *why)
{
    i64 ignored;
    bool good =
        kind == VX_JSON_I64 ? vx_json_whole(value, &ignored) : value->kind == kind;
    return good ? VX_OK : value_fail(value, why, vx_json_kind_name(kind));
}

vx_status vx_json_read_bool(const struct vx_json *value, struct vx_why *why,
                            bool *boolean)
{
    VX_TRY(vx_json_check_kind(value, VX_JSON_BOOL, why));
    *boolean = value->boolean;
    return VX_OK;
}

vx_status vx_json_read_i64(const struct vx_json *value, i64 min, i64 max,
                           struct vx_why *why, i64 *number)
{
    char expected[80];
    snprintf(expected, sizeof expected, "an integer from %lld to %lld", (long long)min,
             (long long)max);
    i64 whole;
    bool good = vx_json_whole(value, &whole) && whole >= min && whole <= max;
    if (!good) return value_fail(value, why, expected);
    *number = whole;
    return VX_OK;
}

vx_status vx_json_read_f64(const struct vx_json *value, f64 min, f64 max,
                           struct vx_why *why, f64 *number)
{
    char expected[80];
    snprintf(expected, sizeof expected, "a number from %g to %g", min, max);
    bool is_number = value->kind == VX_JSON_I64 || value->kind == VX_JSON_F64;
    f64 real = value->kind == VX_JSON_I64 ? (f64)value->number : value->real;
    bool good = is_number && real >= min && real <= max;
    if (!good) return value_fail(value, why, expected);
    *number = real;
    return VX_OK;
}

vx_status vx_json_read_power(const struct vx_json *value, int most, struct vx_why *why,
                             f64 *number)
{
    char expected[80];
    snprintf(expected, sizeof expected, "a power of two from 2^-%d to 2^%d", most, most);
    f64 real = value->kind == VX_JSON_I64 ? (f64)value->number : value->real;
    bool is_number = value->kind == VX_JSON_I64 || value->kind == VX_JSON_F64;
    bool good = false;
    f64 power = 1;
    for (int i = 0; i <= most && is_number; i++, power *= 2)
        good |= real == power || real == 1 / power;
    if (!good) return value_fail(value, why, expected);
    *number = real;
    return VX_OK;
}

vx_status vx_json_read_text(const struct vx_json *value, struct vx_why *why,
                            const char **text)
{
    VX_TRY(vx_json_check_kind(value, VX_JSON_TEXT, why));
    *text = value->text;
    return VX_OK;
}

vx_status vx_json_read_name(const struct vx_json *value, struct vx_why *why, char *out,
                            size_t bytes)
{
    char expected[64];
    snprintf(expected, sizeof expected, "a text of 1 to %zu bytes", bytes - 1);
    bool good =
        value->kind == VX_JSON_TEXT && value->count > 0 && (size_t)value->count < bytes;
    if (!good) return value_fail(value, why, expected);
    memcpy(out, value->text, (size_t)value->count + 1);
    return VX_OK;
}
