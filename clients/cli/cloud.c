/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/cloud.h"

#include "clients/c/error.h"
#include "clients/c/infer_wire.h"
#include "clients/c/memory.h"
#include "clients/cli/convert.h"
#include "clients/cli/samples.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A cloud is scattered if fewer than one voxel in so many has a neighbour: by accident a
 * scan with a size that is far too small has a few. */
#define SCATTER_PART 100
/* How many voxels are looked at; they are a fair sample of a larger cloud. */
#define SCATTER_LOOKS_MAX 65536

/* A hash table from voxels to rows: open addressing, at most half full. */
struct index {
    int32_t *slots; /* row + 1, 0 = free */
    uint64_t mask;
};

static bool index_init(struct index *index, int64_t count)
{
    uint64_t slots = 16;
    while (slots < 2 * (uint64_t)count) slots *= 2;
    index->mask = slots - 1;
    index->slots = voxel_memory_take(slots, sizeof *index->slots);
    return index->slots;
}

/* Mixes four words so that neighbours get distant slots (multiply and fold, 64 bits). */
static uint64_t hash_of(const int32_t *key)
{
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (int i = 0; i < 4; i++) {
        h = (h ^ (uint32_t)key[i]) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return h;
}

/* The slot of a voxel: that of its row, or a free one. */
static int32_t *index_slot(const struct index *index, const int32_t *coords,
                           const int32_t *key)
{
    for (uint64_t at = hash_of(key);; at++) {
        int32_t *slot = &index->slots[at & index->mask];
        if (*slot == 0) return slot;
        int64_t row = *slot - 1;
        if (memcmp(&coords[4 * row], key, 4 * sizeof *key) == 0) return slot;
    }
}

/* The row of a voxel.  A new voxel is entered with the row `next`. */
static int64_t index_find_or_add(struct index *index, const int32_t *coords,
                                 const int32_t *key, int64_t next)
{
    int32_t *slot = index_slot(index, coords, key);
    if (*slot == 0) *slot = (int32_t)(next + 1);
    return *slot - 1;
}

/* Whether one of the 26 voxels around that of a row is in the index. */
static bool has_neighbour(const struct index *index, const int32_t *coords, int64_t row)
{
    const int32_t *at = &coords[4 * row];
    for (int step = 0; step < 27; step++) {
        const int32_t by[3] = {step / 9 - 1, step / 3 % 3 - 1, step % 3 - 1};
        int32_t key[4] = {at[0], 0, 0, 0};
        bool beyond = false; /* of 32 bits */
        for (int k = 0; k < 3; k++)
            beyond |= __builtin_add_overflow(at[k + 1], by[k], &key[k + 1]);
        if (step == 13 || beyond) continue; /* 13 is the voxel itself */
        if (*index_slot(index, coords, key)) return true;
    }
    return false;
}

/* Looks at rows that lie evenly in the cloud: in a scan the first ones decide. */
static bool is_scattered(const struct index *index, const struct cloud *cloud)
{
    const int64_t step = (cloud->count - 1) / SCATTER_LOOKS_MAX + 1;
    int64_t near = 0;
    if (cloud->count < CLOUD_SCATTER_MIN) return false;
    for (int64_t row = 0; row < cloud->count; row += step) {
        near += has_neighbour(index, cloud->coords, row);
        if (near * SCATTER_PART * step >= cloud->count) return false;
    }
    return true;
}

static enum voxel_code point_to_voxel(const struct points *points, int64_t i,
                                      const double size[3], int32_t key[4],
                                      struct voxel_error *error)
{
    key[0] = points->sample ? points->sample[i] : 0;
    for (int k = 0; k < 3; k++) {
        double p = points->xyz[3 * i + k];
        /* On a grid of 1 integers are voxels already; the nudge would change nothing. */
        const bool whole = points->whole && size[k] == 1.0;
        double v = whole ? p : floor(p / size[k] + CLOUD_NUDGE);
        if (!(v >= -2147483648.0 && v <= 2147483647.0))
            return voxel_error_set(
                error, VOXEL_INVALID_ARGUMENT,
                "point %lld: column %d (%c of a .ply) gives voxel %g, which does not fit "
                "32 bits%s",
                (long long)i, k + (points->sample ? 1 : 0), 'x' + k, v,
                whole ? "" : ": use a larger voxel size");
        key[k + 1] = (int32_t)v;
    }
    return VOXEL_OK;
}

static bool is_placed(const double *xyz)
{
    return isfinite(xyz[0]) && isfinite(xyz[1]) && isfinite(xyz[2]);
}

/* Adds the point's feats to those of its voxel. */
static enum voxel_code add_feats(const struct points *points, int64_t i,
                                 struct cloud *cloud, int64_t row,
                                 struct voxel_error *error)
{
    int32_t channels = cloud->channels;
    for (int32_t c = 0; c < channels; c++) {
        float *sum = &cloud->feats[row * channels + c];
        double exact = (double)*sum + (double)points->feats[i * channels + c];
        if (convert_overflows(exact, VOXEL_FP32))
            return voxel_error_set(
                error, VOXEL_INVALID_ARGUMENT,
                "row %lld, channel %d of feats: with the other points of "
                "its voxel the sum is beyond FP32",
                (long long)i, (int)c);
        *sum = (float)exact;
    }
    return VOXEL_OK;
}

static enum voxel_code place_points(const struct points *points, struct cloud *cloud,
                                    struct index *index, float *weights,
                                    struct voxel_error *error)
{
    int32_t channels = cloud->channels;
    static const double one[3] = {1, 1, 1};
    const double *step = cloud->whole ? one : cloud->size;
    for (int64_t i = 0; i < points->count; i++) {
        if (!is_placed(&points->xyz[3 * i])) {
            cloud->dropped++;
            continue;
        }
        int32_t *key = &cloud->coords[4 * cloud->count];
        enum voxel_code code = point_to_voxel(points, i, step, key, error);
        if (code) return code;
        int64_t row = index_find_or_add(index, cloud->coords, key, cloud->count);
        if (row < cloud->count && cloud->whole)
            return voxel_error_set(
                error, VOXEL_INVALID_ARGUMENT,
                "rows %lld and %lld are the same voxel (sample %d, axes %d, %d, %d): "
                "expected each voxel once; with --voxel SIZE rows are points and are "
                "merged",
                (long long)row, (long long)i, (int)key[0], (int)key[1], (int)key[2],
                (int)key[3]);
        if (row == cloud->count)
            cloud->count++;
        else
            cloud->merged++;
        if (!cloud->feats) continue;
        weights[row] += 1.0f;
        code = add_feats(points, i, cloud, row, error);
        if (code) return code;
    }
    for (int64_t row = 0; cloud->feats && row < cloud->count; row++) {
        bool odd = false;
        for (int32_t c = 0; c < channels; c++) {
            cloud->feats[row * channels + c] /= weights[row];
            odd |= !isfinite(cloud->feats[row * channels + c]);
        }
        cloud->feats_odd += odd;
    }
    if (cloud->count || !cloud->dropped) return VOXEL_OK;
    return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                           "none of the %lld points has a position: all are NaN or "
                           "infinite",
                           (long long)points->count);
}

/* Refuses a size with which no two voxels could be neighbours, and positions without one. */
static enum voxel_code check_size(const struct points *points, double size,
                                  const struct cloud *cloud, struct voxel_error *error)
{
    if (points->whole && size > 0 && size < 1)
        return voxel_error_set(
            error, VOXEL_INVALID_ARGUMENT,
            "the positions are integers, so --voxel %g would put neighbours %.3g voxels "
            "apart: voxels need no --voxel, and for integers in a unit it is at least 1",
            size, 1 / size);
    if (cloud->size[0] > 0) return VOXEL_OK;
    return voxel_error_set(
        error, VOXEL_INVALID_ARGUMENT,
        "the positions are floats: set the size of a voxel in their unit with "
        "--voxel SIZE (1 if they are voxels already)%s",
        points->size_idle ? "; the voxel_size of a .npz is not used to place points, "
                            "which may be voxels already"
                          : ", or in a .ply with the line 'comment voxel_size 0.1'");
}

enum voxel_code cloud_make(const struct points *points, double size, struct cloud *cloud,
                           struct voxel_error *error)
{
    memset(cloud, 0, sizeof *cloud);
    memcpy(cloud->axes, "xyz", sizeof cloud->axes);
    cloud->named = points->named;
    cloud->whole = points->whole && size <= 0;
    cloud->sized = size > 0 || points->voxel_size[0] > 0;
    for (int k = 0; k < 3; k++) {
        cloud->size[k] = size > 0 ? size : points->voxel_size[k];
        if (cloud->whole && !(cloud->size[k] > 0)) cloud->size[k] = 1.0;
    }
    cloud->scaled = points->scaled;
    memcpy(cloud->size_came, points->size_came, sizeof cloud->size_came);
    memcpy(cloud->offers, points->offers, sizeof cloud->offers);
    memcpy(cloud->unused, points->unused, sizeof cloud->unused);
    enum voxel_code code = check_size(points, size, cloud, error);
    if (code) return code;
    size_t count = (size_t)points->count;
    struct index index = {0};
    float *weights = NULL;
    cloud->channels = points->feats ? points->channels : 0;
    size_t channels = (size_t)cloud->channels;
    /* One row more, since the key of each point is made in place, as if it were new. */
    cloud->coords = voxel_memory_take(count + 1, 4 * sizeof *cloud->coords);
    if (channels)
        cloud->feats = voxel_memory_take(count, channels * sizeof *cloud->feats);
    if (channels) weights = voxel_memory_take(count, sizeof *weights);
    if (!index_init(&index, points->count) || !cloud->coords ||
        (channels && (!cloud->feats || !weights)))
        code = voxel_error_memory(error, "voxels", count * 16);
    if (!code) code = place_points(points, cloud, &index, weights, error);
    if (!code) cloud->scattered = is_scattered(&index, cloud);
    voxel_memory_give(index.slots);
    voxel_memory_give(weights);
    if (code) cloud_fini(cloud);
    return code;
}

/* The largest whole number whose square is at most `square`. */
static int64_t root_of(int64_t square)
{
    int64_t root = (int64_t)sqrt((double)square);
    while (root * root > square) root--;
    while ((root + 1) * (root + 1) <= square) root++;
    return root;
}

/* A sphere around `centre`. */
struct shell {
    int64_t r, centre[3];
};

/* Adds one voxel of a shell; counts it also without room for its row. */
static void shell_put(const int64_t at[3], const struct shell *shell, struct cloud *cloud,
                      int64_t room)
{
    if (cloud->count < room) {
        int32_t *row = &cloud->coords[4 * cloud->count];
        row[0] = 0;
        for (int k = 0; k < 3; k++) row[k + 1] = (int32_t)(at[k] + shell->centre[k]);
    }
    cloud->count++;
}

/* Adds the voxels with (r-1)^2 <= x^2 + y^2 + z^2 < r^2: a closed shell, one to two thick.
 * Returns how many there are then; stores at most `room` of them. */
static int64_t shell_fill(const struct shell *shell, struct cloud *cloud, int64_t room)
{
    const int64_t r = shell->r;
    for (int64_t x = -r; x <= r; x++) {
        for (int64_t y = -r; y <= r; y++) {
            int64_t flat = x * x + y * y;
            if (flat >= r * r) continue;
            int64_t outer = root_of(r * r - 1 - flat);
            int64_t hollow = (r - 1) * (r - 1) - flat;
            int64_t inner = hollow > 0 ? root_of(hollow - 1) + 1 : 0;
            for (int64_t z = -outer; z <= outer; z++) {
                if (z > -inner && z < inner) z = inner;
                if (z <= outer) shell_put((int64_t[3]){x, y, z}, shell, cloud, room);
            }
        }
    }
    return cloud->count;
}

static int64_t shell_count(int64_t r)
{
    struct cloud none = {0};
    return shell_fill(&(struct shell){.r = r}, &none, 0);
}

/* How many spheres, each in a cube of 2r - 1 voxels, lie side by side in the shape. */
static void cubes_of(const int32_t shape[3], int64_t r, int64_t cubes[3])
{
    for (int k = 0; k < 3; k++) cubes[k] = shape[k] / (2 * r - 1);
}

/* Spheres side by side, the largest that are enough: of r = 1 every voxel is one. */
static void tile_shells(int64_t count, const int32_t shape[3], int64_t r,
                        struct cloud *cloud)
{
    int64_t cubes[3], at[3];
    for (;; r--) {
        cubes_of(shape, r, cubes);
        const double room = (double)cubes[0] * (double)cubes[1] * (double)cubes[2];
        if (r == 1 || room * (double)shell_count(r) >= (double)count) break;
    }
    for (at[0] = 0; at[0] < cubes[0]; at[0]++)
        for (at[1] = 0; at[1] < cubes[1]; at[1]++)
            for (at[2] = 0; at[2] < cubes[2]; at[2]++) {
                struct shell shell = {.r = r};
                if (cloud->count >= count) return;
                for (int k = 0; k < 3; k++) shell.centre[k] = at[k] * (2 * r - 1) + r - 1;
                shell_fill(&shell, cloud, count);
            }
}

enum voxel_code cloud_make_shell(int64_t count, const int32_t shape[3],
                                 struct cloud *cloud, struct voxel_error *error)
{
    memset(cloud, 0, sizeof *cloud);
    if (count < 0 || count > POINTS_MAX)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "voxels must be 0..%d, not %lld", POINTS_MAX,
                               (long long)count);
    const bool bounded = shape[0] > 0;
    if (bounded && (double)shape[0] * shape[1] * shape[2] < (double)count)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "%lld voxels do not fit into the model's spatial_shape "
                               "%dx%dx%d",
                               (long long)count, (int)shape[0], (int)shape[1],
                               (int)shape[2]);
    cloud->coords = voxel_memory_take((size_t)count, 4 * sizeof *cloud->coords);
    if (!cloud->coords) return voxel_error_memory(error, "voxels", (size_t)count * 16);
    /* A shell one voxel thick has about 4 pi r^2 voxels: start there, and take the first
     * radius that gives enough. */
    int64_t r = (int64_t)sqrt((double)count / 12.6), least = INT64_MAX;
    if (r < 1) r = 1;
    while (shell_count(r) < count) r++;
    for (int k = 0; k < 3; k++)
        if (bounded && shape[k] < least) least = shape[k];
    if (2 * r <= least)
        shell_fill(&(struct shell){r, {r, r, r}}, cloud, count);
    else
        tile_shells(count, shape, (least + 1) / 2, cloud);
    cloud->count = count;
    memcpy(cloud->axes, "xyz", sizeof cloud->axes);
    for (int k = 0; k < 3; k++) cloud->size[k] = 1.0;
    cloud->whole = true;
    return VOXEL_OK;
}

enum voxel_code cloud_check_shape(const struct cloud *cloud, const int32_t shape[3],
                                  struct voxel_error *error)
{
    for (int64_t i = 0; shape[0] > 0 && i < cloud->count; i++) {
        const int32_t *at = &cloud->coords[4 * i + 1];
        if (at[0] >= 0 && at[0] < shape[0] && at[1] >= 0 && at[1] < shape[1] &&
            at[2] >= 0 && at[2] < shape[2])
            continue;
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "voxel (%d, %d, %d) lies outside of the model's "
                               "spatial_shape %dx%dx%d",
                               (int)at[0], (int)at[1], (int)at[2], (int)shape[0],
                               (int)shape[1], (int)shape[2]);
    }
    return VOXEL_OK;
}

int32_t cloud_samples(const struct cloud *cloud)
{
    bool seen[SAMPLE_MAX + 1] = {false};
    int32_t count = 0;
    for (int64_t row = 0; row < cloud->count; row++) {
        int32_t sample = cloud->coords[4 * row];
        if (sample < 0 || sample > SAMPLE_MAX || seen[sample]) continue;
        seen[sample] = true;
        count++;
    }
    return count;
}

void cloud_fini(struct cloud *cloud)
{
    voxel_memory_give(cloud->coords);
    voxel_memory_give(cloud->feats);
    memset(cloud, 0, sizeof *cloud);
}

bool cloud_has_cubes(const struct cloud *cloud)
{
    double stride[3] = {1, 1, 1};
    if (*cloud->stride && !voxel_stride_read(cloud->stride, stride)) return false;
    return cloud->size[0] == cloud->size[1] && cloud->size[1] == cloud->size[2] &&
           stride[0] == stride[1] && stride[1] == stride[2];
}

const char *cloud_size_text(const struct cloud *cloud, char text[CLOUD_SIZE_BYTES])
{
    const double *size = cloud->size;
    if (cloud_has_cubes(cloud))
        snprintf(text, CLOUD_SIZE_BYTES, "%.9g", size[0]);
    else
        snprintf(text, CLOUD_SIZE_BYTES, "%.9g %.9g %.9g", size[0], size[1], size[2]);
    return text;
}
