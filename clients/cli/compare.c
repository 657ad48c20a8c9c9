/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/compare.h"

#include "clients/c/error.h"
#include "clients/c/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DECADE_EQUAL    0
#define DECADE_FIRST    1  /* below 1e-9 */
#define DECADE_LAST     11 /* from 1 on */
#define DECADE_INFINITE 12

/* --- rows --- */

struct voxel_row {
    int32_t at[4];
    int64_t row;
};

static int compare_voxels(const int32_t *a, const int32_t *b)
{
    for (int k = 0; k < 4; k++)
        if (a[k] != b[k]) return a[k] < b[k] ? -1 : 1;
    return 0;
}

static int compare_rows(const void *left, const void *right)
{
    const struct voxel_row *a = left, *b = right;
    int order = compare_voxels(a->at, b->at);
    if (order) return order;
    return a->row < b->row ? -1 : a->row > b->row;
}

static struct voxel_row *sorted_rows(const struct compare_tensor *tensor)
{
    struct voxel_row *rows = voxel_memory_take((size_t)tensor->rows + 1, sizeof *rows);
    if (!rows) return NULL;
    for (int64_t i = 0; i < tensor->rows; i++) {
        memcpy(rows[i].at, &tensor->coords[4 * i], sizeof rows[i].at);
        rows[i].row = i;
    }
    qsort(rows, (size_t)tensor->rows, sizeof *rows, compare_rows);
    return rows;
}

static bool same_order(const struct compare_tensor *a, const struct compare_tensor *b)
{
    if (a->rows != b->rows) return false;
    if (!a->coords || !b->coords || a->rows == 0) return true;
    return memcmp(a->coords, b->coords, (size_t)a->rows * 4 * sizeof *a->coords) == 0;
}

static void merge_rows(const struct voxel_row *a, const struct voxel_row *b,
                       const int64_t counts[2], int64_t *match)
{
    int64_t j = 0;
    for (int64_t i = 0; i < counts[0]; i++) {
        while (j < counts[1] && compare_voxels(b[j].at, a[i].at) < 0) j++;
        bool there = j < counts[1] && compare_voxels(b[j].at, a[i].at) == 0;
        match[a[i].row] = there ? b[j++].row : -1;
    }
}

int64_t *compare_match(const struct compare_tensor *a, const struct compare_tensor *b,
                       struct compare_missing *missing)
{
    int64_t *match = voxel_memory_take((size_t)a->rows + 1, sizeof *match);
    *missing = (struct compare_missing){0, 0};
    if (!match) return NULL;
    if (same_order(a, b)) {
        for (int64_t i = 0; i < a->rows; i++) match[i] = i;
        return match;
    }
    struct voxel_row *left = sorted_rows(a);
    struct voxel_row *right = sorted_rows(b);
    const int64_t counts[2] = {a->rows, b->rows};
    if (left && right) {
        merge_rows(left, right, counts, match);
    } else {
        voxel_memory_give(match);
        match = NULL;
    }
    int64_t found = 0;
    for (int64_t i = 0; match && i < a->rows; i++) found += match[i] >= 0;
    *missing = (struct compare_missing){a->rows - found, b->rows - found};
    voxel_memory_give(left);
    voxel_memory_give(right);
    return match;
}

/* --- numbers --- */

/* Infinity if one is not finite and the other is another number. */
static double difference(float a, float b)
{
    if (isfinite(a) && isfinite(b)) return fabs((double)a - (double)b);
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b) ? 0 : INFINITY;
    return a == b ? 0 : INFINITY;
}

static int decade_of(double relative)
{
    if (relative == 0) return DECADE_EQUAL;
    if (isinf(relative)) return DECADE_INFINITE;
    int decade = DECADE_LAST;
    for (double edge = 1; decade > DECADE_FIRST && relative < edge; edge /= 10) decade--;
    return decade;
}

const char *compare_decade_name(int decade)
{
    static const char *const names[COMPARE_DECADES] = {
        "equal",  "< 1e-9", "< 1e-8", "< 1e-7", "< 1e-6", "< 1e-5",  "< 1e-4",
        "< 1e-3", "< 1e-2", "< 0.1",  "< 1",    ">= 1",   "infinite"};
    return names[decade];
}

static double over(double value, double scale)
{
    if (value == 0) return 0;
    return scale > 0 ? value / scale : INFINITY;
}

struct pair {
    const struct compare_tensor *a, *b;
    const int64_t *match;
};

/* The sizes of A and where the worst difference is. */
static void measure(const struct pair *pair, struct comparison *found)
{
    double squares = 0;
    double errors = 0;
    const int64_t columns = pair->a->columns;
    for (int64_t i = 0; i < pair->a->rows; i++) {
        if (pair->match[i] < 0) continue;
        const float *left = &pair->a->numbers[i * columns];
        const float *right = &pair->b->numbers[pair->match[i] * columns];
        found->rows++;
        for (int64_t c = 0; c < columns; c++) {
            double apart = difference(left[c], right[c]);
            double size = isfinite(left[c]) ? fabs((double)left[c]) : 0;
            if (size > found->largest) found->largest = size;
            squares += size * size;
            found->finite += isfinite(left[c]) && isfinite(right[c]);
            errors += apart * apart;
            if (apart <= found->worst) continue;
            found->worst = apart;
            found->row = i;
            found->other = pair->match[i];
            found->column = c;
        }
    }
    found->blank = found->rows && columns && !found->finite;
    found->relative = over(found->worst, found->largest);
    found->nmse = over(errors, squares);
}

/* Counts the decades, which need the largest number first. */
static void count_decades(const struct pair *pair, float *errors,
                          struct comparison *found)
{
    const int64_t columns = pair->a->columns;
    for (int64_t i = 0; i < pair->a->rows; i++) {
        double worst = pair->match[i] < 0 ? INFINITY : 0;
        for (int64_t c = 0; c < columns && pair->match[i] >= 0; c++) {
            double apart =
                over(difference(pair->a->numbers[i * columns + c],
                                pair->b->numbers[pair->match[i] * columns + c]),
                     found->largest);
            found->decades[decade_of(apart)]++;
            if (apart > worst) worst = apart;
        }
        if (errors) errors[i] = (float)worst;
    }
}

static int64_t label_of(const struct compare_tensor *tensor, int64_t index)
{
    return tensor->labels ? tensor->labels[index] : (int64_t)tensor->numbers[index];
}

static void count_labels(const struct pair *pair, float *errors, struct comparison *found)
{
    const int64_t columns = pair->a->columns;
    int64_t all = 0;
    for (int64_t i = 0; i < pair->a->rows; i++) {
        if (errors) errors[i] = pair->match[i] < 0 ? INFINITY : 0;
        if (pair->match[i] < 0) continue;
        found->rows++;
        for (int64_t c = 0; c < columns; c++, all++) {
            if (label_of(pair->a, i * columns + c) ==
                label_of(pair->b, pair->match[i] * columns + c))
                continue;
            if (errors) errors[i] = 1;
            if (found->wrong++) continue;
            found->row = i;
            found->other = pair->match[i];
            found->column = c;
        }
    }
    found->relative = over((double)found->wrong, (double)all);
}

/* Dense tensors of equal size but other dimensions are the same numbers. */
static bool shapes_fit(const struct compare_tensor *a, const struct compare_tensor *b)
{
    if (!a->coords != !b->coords) return false;
    return a->columns == b->columns && (a->coords || a->rows == b->rows);
}

enum voxel_code compare_tensors(const struct compare_tensor *a,
                                const struct compare_tensor *b, float *errors,
                                struct comparison *found, struct voxel_error *error)
{
    struct compare_missing missing;
    *found = (struct comparison){.row = -1, .column = -1, .other = -1};
    found->labels = a->labels != NULL;
    found->shapes = !shapes_fit(a, b);
    found->kinds = !a->labels != !b->labels;
    if (found->shapes || found->kinds) {
        found->relative = INFINITY;
        for (int64_t i = 0; errors && i < a->rows; i++) errors[i] = INFINITY;
        return VOXEL_OK;
    }
    int64_t *match = compare_match(a, b, &missing);
    if (!match) return voxel_error_memory(error, "a comparison", (size_t)a->rows * 32);
    found->only_a = missing.only_a;
    found->only_b = missing.only_b;
    const struct pair pair = {a, b, match};
    if (found->labels) {
        count_labels(&pair, errors, found);
    } else {
        measure(&pair, found);
        count_decades(&pair, errors, found);
    }
    voxel_memory_give(match);
    return VOXEL_OK;
}

bool compare_within(const struct comparison *found, double bound)
{
    return !found->shapes && !found->kinds && !found->blank && !found->only_a &&
           !found->only_b && found->relative <= bound;
}
