/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tools/bench_cloud.h"

#include "engine/base/limits.h"
#include "engine/base/process/alloc.h"
#include "engine/base/text/typed.h"
#include "engine/tools/npz.h"
#include "engine/tools/workbench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALL        "clouds"
#define SUFFIX     ".npy"
#define PATH_BYTES 1024

/* --- a file --- */

struct file {
    char path[PATH_BYTES];
    f64 size; /* of a voxel; 0 = the file has voxels */
};

/* "scan.npy:0.1"; false: not a .npy, or no size behind the colon. */
static bool file_parse(const char *word, struct file *file)
{
    const size_t suffix = strlen(SUFFIX);
    snprintf(file->path, sizeof file->path, "%s", word);
    file->size = 0;
    char *colon = strrchr(file->path, ':');
    if (colon) {
        const char *digits = colon + 1; /* strtod takes hexadecimal, blanks and nan too */
        char *end;
        if (digits[strspn(digits, "0123456789.e+-")]) return false;
        file->size = strtod(digits, &end);
        if (*end || end == digits || !(file->size > 0) || !isnormal(file->size))
            return false;
        *colon = 0;
    }
    size_t length = strlen(file->path);
    return length > suffix && !strcmp(file->path + length - suffix, SUFFIX);
}

/* The file's name without folder and ending, as much as a cloud's name holds with a level. */
static void file_name(const char *path, char name[VX_CLOUD_NAME_BYTES])
{
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    int length = (int)(strlen(base) - strlen(SUFFIX));
    snprintf(name, VX_CLOUD_NAME_BYTES, "%.*s", length > 16 ? 16 : length, base);
}

static f64 element(const struct vx_npz_array *array, i64 at)
{
    const u8 *data = (const u8 *)array->data + at * array->size;
    f32 single;
    f64 number;
    i16 tiny;
    i32 small;
    i64 large;
    if (array->kind == 'f' && array->size == 4)
        return memcpy(&single, data, sizeof single), (f64)single;
    if (array->kind == 'f') return memcpy(&number, data, sizeof number), number;
    if (array->size == 2) return memcpy(&tiny, data, sizeof tiny), (f64)tiny;
    if (array->size == 4) return memcpy(&small, data, sizeof small), (f64)small;
    return memcpy(&large, data, sizeof large), (f64)large;
}

static vx_status array_check(const struct file *file, const struct vx_npz_array *array,
                             struct vx_why *why)
{
    bool whole = array->kind == 'i';
    bool points = array->kind == 'f' && array->size >= 4;
    bool wide = array->rank == 2 &&
                (file->size > 0 ? array->shape[1] >= 3
                                : array->shape[1] == 3 || array->shape[1] == 4);
    VX_ENSURE_WHY(wide && array->shape[0] >= 1 && array->shape[0] <= VX_CLOUD_VOXELS_MAX,
                  why, INVALID_ARGUMENT, "a cloud has another shape",
                  "%s: expected 1 to %lld rows of %s, got %d dimensions of %lld and %lld",
                  file->path, (long long)VX_CLOUD_VOXELS_MAX,
                  file->size > 0 ? "at least 3 columns"
                                 : "3 columns (axes) or 4 (sample, axes)",
                  array->rank, (long long)array->shape[0],
                  array->rank > 1 ? (long long)array->shape[1] : 0);
    VX_ENSURE_WHY(
        whole || (points && file->size > 0), why, INVALID_ARGUMENT,
        "a cloud has another type",
        "%s: expected signed integers, or floats with the edge of a voxel behind "
        "the name, as in scan.npy:0.1, got <%c%d",
        file->path, array->kind, array->size);
    return VX_OK;
}

/* Row `i` as sample, x, y, z; false: out of range. */
static bool row_read(const struct file *file, const struct vx_npz_array *array, i64 i,
                     i32 row[4])
{
    const i64 columns = array->shape[1];
    const bool sampled = !(file->size > 0) && columns == 4;
    bool good = true;
    row[0] = 0;
    for (i64 column = 0; column < (sampled ? 4 : 3); column++) {
        f64 value = element(array, i * columns + column);
        if (file->size > 0) value = floor(value / file->size);
        bool sample = sampled && column == 0;
        good = good && value >= (sample ? 0 : VX_AXIS_MIN) &&
               value <= (sample ? VX_SAMPLE_MAX : VX_AXIS_MAX);
        row[column + !sampled] = good ? (i32)value : 0;
    }
    return good;
}

static vx_status file_rows(const struct file *file, const struct vx_npz_array *array,
                           struct vx_why *why, i32 *rows)
{
    for (i64 i = 0; i < array->shape[0]; i++)
        VX_ENSURE_WHY(row_read(file, array, i, rows + 4 * i), why, INVALID_ARGUMENT,
                      "a cloud has a row out of range",
                      "%s: row %lld: expected samples 0 to %d and axes %d to %d%s",
                      file->path, (long long)i, VX_SAMPLE_MAX, VX_AXIS_MIN, VX_AXIS_MAX,
                      file->size > 0 ? " after the division" : "");
    return VX_OK;
}

/* Of an array that has been checked. */
static vx_status array_cloud(const struct file *file, const struct vx_npz_array *array,
                             struct vx_why *why, struct vx_cloud *cloud)
{
    char name[VX_CLOUD_NAME_BYTES];
    i32 *rows = vx_alloc((size_t)array->shape[0] * 4 * sizeof *rows);
    VX_ENSURE(rows, RESOURCE_EXHAUSTED, "no memory for a cloud to measure on");
    file_name(file->path, name);
    vx_status status = file_rows(file, array, why, rows);
    if (!status.fault) status = vx_cloud_of_rows(name, rows, array->shape[0], cloud);
    vx_free(rows);
    return status;
}

static vx_status file_cloud(const struct file *file, struct vx_why *why,
                            struct vx_cloud *cloud)
{
    struct vx_npz_array array;
    VX_TRY(vx_npy_read(file->path, why, &array));
    vx_status status = array_check(file, &array, why);
    if (!status.fault) status = array_cloud(file, &array, why, cloud);
    vx_free(array.data);
    return status;
}

/* --- the list --- */

void vx_bench_clouds_close(struct vx_bench_clouds *clouds)
{
    while (clouds->count > 0) vx_cloud_free(&clouds->list[--clouds->count]);
}

static vx_status save(const struct vx_cloud *cloud, const char *folder,
                      struct vx_why *why)
{
    char path[PATH_BYTES];
    const struct vx_npz_array array = {
        .kind = 'i', .size = 4, .rank = 2, .shape = {cloud->n, 4}, .data = cloud->coords};
    int length = snprintf(path, sizeof path, "%s/%s" SUFFIX, folder, cloud->name);
    VX_ENSURE_WHY(length < PATH_BYTES, why, INVALID_ARGUMENT, "a path is too long",
                  "--save: expected a path of less than %d bytes", PATH_BYTES);
    char *slash = strchr(path + strlen(folder) + 1, '/');
    if (slash) *slash = '-';
    return vx_npy_write(path, &array, why);
}

/* Takes the cloud, and its levels. */
static vx_status take(const struct vx_bench_clouds_wanted *wanted, struct vx_cloud *cloud,
                      struct vx_why *why, struct vx_bench_clouds *clouds)
{
    vx_status status = VX_OK;
    for (i32 level = 0; level < wanted->levels && !status.fault; level++) {
        struct vx_cloud *now = &clouds->list[clouds->count];
        VX_ENSURE_WHY(clouds->count < VX_BENCH_CLOUDS_MAX, why, INVALID_ARGUMENT,
                      "too many clouds", "expected at most %d clouds with their levels",
                      VX_BENCH_CLOUDS_MAX);
        if (level)
            status = vx_cloud_level(now - 1, now);
        else
            *now = *cloud, *cloud = (struct vx_cloud){.coords = NULL};
        if (status.fault) break;
        clouds->count++;
        /* A level keeps the order of the one below, so that one is arranged first. */
        status = vx_cloud_arrange(now, wanted->order);
        if (!status.fault && wanted->save) status = save(now, wanted->save, why);
    }
    return status;
}

static vx_status word_clouds(const struct vx_bench_clouds_wanted *wanted,
                             const char *word, struct vx_why *why,
                             struct vx_bench_clouds *clouds)
{
    struct vx_cloud cloud = {.coords = NULL};
    struct file file;
    bool found = false;
    vx_status status = VX_OK;
    for (i32 i = 0; i < vx_clouds_count() && !status.fault; i++) {
        if (strcmp(word, ALL) != 0 && strcmp(word, vx_cloud_name(i)) != 0) continue;
        found = true;
        status = vx_cloud_made(i, &cloud);
        if (!status.fault) status = take(wanted, &cloud, why, clouds);
    }
    if (!found && file_parse(word, &file)) {
        found = true;
        status = file_cloud(&file, why, &cloud);
        if (!status.fault) status = take(wanted, &cloud, why, clouds);
    }
    vx_cloud_free(&cloud);
    if (found) return status;
    char names[256] = ALL;
    for (i32 i = 0; i < vx_clouds_count(); i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, ", %s", vx_cloud_name(i));
    }
    VX_FAIL_WHY(why, INVALID_ARGUMENT, "no such cloud",
                "--cloud: expected %s, FILE.npy or FILE.npy:SIZE, got \"%s\"", names,
                word);
}

vx_status vx_bench_clouds_open(const struct vx_bench_clouds_wanted *wanted,
                               struct vx_why *why, struct vx_bench_clouds *clouds)
{
    char word[PATH_BYTES];
    vx_status status = VX_OK;
    *clouds = (struct vx_bench_clouds){.count = 0};
    for (const char *at = wanted->list; at && *at && !status.fault;) {
        size_t length = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s",
                 (int)(length < PATH_BYTES ? length : PATH_BYTES - 1), at);
        at += length + (at[length] == ',');
        status = word_clouds(wanted, word, why, clouds);
    }
    if (status.fault) vx_bench_clouds_close(clouds);
    return status;
}
