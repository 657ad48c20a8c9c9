/* SPDX-License-Identifier: Apache-2.0 */
#include "server/sched/cost.h"

/* The weight that older batches keep when a new one is learned: the last 20 dominate. */
static const f64 KEEP = 0.95;
/* One batch is learned as at most this many times its prediction. */
static const f64 OUTLIER = 4;
/* A batch far below the line, OUTLIER times or more, shows that the line was fitted to an
 * outlier or to a time when the device was slow: the fit starts anew.  After the first
 * EARLY batches it takes LOW of them in a row. */
enum { EARLY = 8, LOW = 2 };
/* The line is used up to NEAR times the largest measured batch, and always up to
 * NEAR_PAIRS pairs, which take no device long. */
static const f64 NEAR = 4, NEAR_PAIRS = 1 << 16;
/* Batches of equal size say nothing about the slope.  The fit therefore keeps the
 * previous slope with the weight that batches spread by 2 % of the mean would have, so
 * that it fades only when the measurements give a better one. */
static const f64 SPREAD = 0.02;

/* The weight of a new batch in the mean of its class. */
static const f64 CLASS_NEW = 0.25;
/* Each class has batches of so many times the pairs of the one before. */
static const f64 CLASS_PAIRS = 4;

i32 vx_cost_class(f64 pairs)
{
    i32 class = 0;
    for (; pairs >= CLASS_PAIRS && class < VX_COST_CLASSES - 1; pairs /= CLASS_PAIRS)
        class ++;
    return class;
}

static f64 lesser(f64 a, f64 b)
{
    return a < b ? a : b;
}

/* At most OUTLIER times what batches of this class or a smaller one took; of a class without
 * batches, what the next larger one has.  So it grows with the pairs, as the line does.  Beyond the
 * largest class with batches it grows in proportion to the pairs: a line that was begun anew by a
 * batch of one voxel said 100 us a pair, and so 50 s of a batch that takes 3 ms. */
static f64 cost_bound(const struct vx_cost *cost, f64 pairs, f64 line_ns)
{
    f64 most = 0, least_pairs = 1, of_class = 1;
    i32 class = vx_cost_class(pairs);
    for (i32 c = 0; c < VX_COST_CLASSES; c++, of_class *= CLASS_PAIRS) {
        if (cost->class_ns[c] <= 0) continue;
        if (cost->class_ns[c] > most) most = cost->class_ns[c];
        if (c >= class) return lesser(line_ns, OUTLIER * most);
        least_pairs = of_class;
    }
    return most > 0 ? lesser(line_ns, OUTLIER * most * (pairs / least_pairs)) : line_ns;
}

static void cost_fit(struct vx_cost *cost)
{
    f64 mean_x = cost->x / cost->weight, mean_y = cost->y / cost->weight;
    f64 variance = cost->xx / cost->weight - mean_x * mean_x;
    f64 covariance = cost->xy / cost->weight - mean_x * mean_y;
    f64 hold = SPREAD * SPREAD * mean_x * mean_x;
    if (variance < 0) variance = 0; /* rounding */
    /* Until a slope is known, half of the time is assumed to grow with the pairs. */
    f64 slope = cost->slope_ns > 0 || mean_x <= 0 ? cost->slope_ns : mean_y / mean_x / 2;
    if (hold > 0) slope = (covariance + hold * slope) / (variance + hold);
    if (slope < 0) slope = 0;
    f64 fixed = mean_y - slope * mean_x;
    if (fixed < 0) {
        fixed = 0;
        slope = mean_x > 0 ? mean_y / mean_x : 0;
    }
    cost->slope_ns = slope;
    cost->fixed_ns = fixed;
}

static void cost_learn_build(struct vx_cost *cost, i64 ns, i64 voxels)
{
    if (voxels <= 0 || ns <= 0) return;
    f64 y = (f64)ns, x = (f64)voxels;
    /* As with the line: the first build is warm-up, and an outlier is learned as OUTLIER
     * times the mean. */
    if (cost->built < VX_COST_SEEN_MIN) cost->built++;
    if (cost->built == 1) return;
    if (cost->build_voxels > 0) {
        f64 most = OUTLIER * cost->build_ns / cost->build_voxels * x;
        if (cost->built == VX_COST_SEEN_MIN && y > most) y = most;
    }
    cost->build_ns = cost->build_ns * KEEP + y;
    cost->build_voxels = cost->build_voxels * KEEP + x;
}

static void cost_learn_unforeseen(struct vx_cost *cost, i64 ns, i64 bytes)
{
    if (bytes <= 0 || ns <= 0) return;
    f64 y = (f64)ns, x = (f64)bytes;
    if (cost->unforeseen_bytes > 0) {
        f64 most = OUTLIER * cost->unforeseen_ns / cost->unforeseen_bytes * x;
        if (y > most) y = most;
    }
    cost->unforeseen_ns = cost->unforeseen_ns * KEEP + y;
    cost->unforeseen_bytes = cost->unforeseen_bytes * KEEP + x;
}

void vx_cost_learn(struct vx_cost *cost, const struct vx_cost_seen *seen)
{
    cost_learn_build(cost, seen->build_ns, seen->build_voxels);
    cost_learn_unforeseen(cost, seen->unforeseen_ns, seen->unforeseen_bytes);
    f64 x = seen->pairs > 0 ? seen->pairs : 0, y = seen->ns > 0 ? (f64)seen->ns : 0;
    if (x > cost->most) cost->most = x;
    if (cost->seen <= EARLY) cost->seen++;
    if (cost->seen == 1) return;
    if (cost->weight > 0) {
        f64 expected = cost->fixed_ns + cost->slope_ns * x;
        if (y > OUTLIER * expected && expected > 0) y = OUTLIER * expected;
        cost->low = y < expected / OUTLIER ? cost->low + 1 : 0;
        if (cost->low && (cost->seen <= EARLY || cost->low >= LOW))
            cost->weight = cost->x = cost->y = cost->xx = cost->xy = cost->slope_ns = 0;
    }
    f64 *class_ns = &cost->class_ns[vx_cost_class(x)];
    *class_ns += (y - *class_ns) * (*class_ns > 0 ? CLASS_NEW : 1);
    cost->weight = cost->weight * KEEP + 1;
    cost->x = cost->x * KEEP + x;
    cost->y = cost->y * KEEP + y;
    cost->xx = cost->xx * KEEP + x * x;
    cost->xy = cost->xy * KEEP + x * y;
    cost_fit(cost);
}

/* The most pairs for which the line is used. */
static f64 near_pairs(const struct vx_cost *cost)
{
    return NEAR * cost->most > NEAR_PAIRS ? NEAR * cost->most : NEAR_PAIRS;
}

bool vx_cost_is_far(const struct vx_cost *cost, f64 pairs)
{
    return pairs > near_pairs(cost);
}

bool vx_cost_is_known(const struct vx_cost *cost)
{
    return cost->seen >= VX_COST_SEEN_MIN;
}

bool vx_cost_is_firm(const struct vx_cost *cost)
{
    return cost->seen > EARLY;
}

/* Limits a prediction to a hundred days, so that it can be added to a time. */
static i64 cost_ns(f64 ns)
{
    static const f64 most = 1e16;
    return ns < 0 ? 0 : (i64)(ns < most ? ns : most);
}

i64 vx_cost_more_ns(const struct vx_cost *cost, f64 pairs)
{
    return vx_cost_is_known(cost) ? cost_ns(cost->slope_ns * pairs) : 0;
}

i64 vx_cost_build_ns(const struct vx_cost *cost, i64 voxels, i64 otherwise_ns)
{
    if (voxels <= 0) return 0;
    if (cost->build_voxels <= 0) return otherwise_ns;
    return cost_ns(cost->build_ns / cost->build_voxels * (f64)voxels);
}

i64 vx_cost_unforeseen_ns(const struct vx_cost *cost, i64 bytes)
{
    if (bytes <= 0 || cost->unforeseen_bytes <= 0) return 0;
    return cost_ns(cost->unforeseen_ns / cost->unforeseen_bytes * (f64)bytes);
}

i64 vx_cost_predict_ns(const struct vx_cost *cost, f64 pairs, i64 build_voxels)
{
    if (!vx_cost_is_known(cost)) return 0;
    f64 line_ns = cost->fixed_ns + cost->slope_ns * pairs;
    i64 ns = cost_ns(cost_bound(cost, pairs, line_ns));
    ns += vx_cost_build_ns(cost, build_voxels, 0);
    return ns > 0 ? ns : 1;
}

i64 vx_cost_believe_ns(const struct vx_cost *cost, f64 pairs, i64 build_voxels)
{
    if (vx_cost_is_far(cost, pairs)) pairs = near_pairs(cost);
    return vx_cost_predict_ns(cost, pairs, build_voxels);
}

void vx_cost_ratio_learn(struct vx_cost_ratio *ratio, i64 needed, i64 voxels)
{
    if (needed <= 0 || voxels <= 0) return;
    ratio->needed = ratio->needed * KEEP + (f64)needed;
    ratio->voxels = ratio->voxels * KEEP + (f64)voxels;
}

f64 vx_cost_ratio_expect(const struct vx_cost_ratio *ratio, i64 voxels)
{
    return ratio->voxels > 0 ? (f64)voxels * (ratio->needed / ratio->voxels)
                             : (f64)voxels;
}
