/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tune/clouds.h"

#include "engine/base/process/check.h"
#include "engine/tune/data.h"

#include <math.h>

#define PI 3.14159265358979323846

/* --- surfaces and solids --- */

#define TORUS_RING  96 /* voxels from the centre to the middle of the tube */
#define TORUS_TUBE  32 /* radius of the tube */
#define TORUS_THICK 1.25

static void make_torus(struct vx_cloud_rows *to)
{
    const i32 edge = TORUS_RING + TORUS_TUBE;
    for (i32 x = -edge; x <= edge; x++)
        for (i32 y = -edge; y <= edge; y++)
            for (i32 z = -TORUS_TUBE; z <= TORUS_TUBE; z++) {
                f64 ring = sqrt((f64)(x * x + y * y)) - TORUS_RING;
                f64 tube = sqrt(ring * ring + (f64)(z * z));
                if (tube <= TORUS_TUBE && tube >= TORUS_TUBE - TORUS_THICK)
                    vx_cloud_add(to, x, y, z);
            }
}

#define CUBE_EDGE 64

static void make_cube(struct vx_cloud_rows *to)
{
    for (i32 x = 0; x < CUBE_EDGE; x++)
        for (i32 y = 0; y < CUBE_EDGE; y++)
            for (i32 z = 0; z < CUBE_EDGE; z++) vx_cloud_add(to, x, y, z);
}

#define PLANE_EDGE 350

/* A slope of 3/10 one way and 1/5 the other: steps in both directions. */
static void make_plane(struct vx_cloud_rows *to)
{
    for (i32 x = 0; x < PLANE_EDGE; x++)
        for (i32 y = 0; y < PLANE_EDGE; y++) vx_cloud_add(to, x, y, (3 * x + 2 * y) / 10);
}

/* --- noise --- */

static void noise(struct vx_cloud_rows *to, i32 edge, i32 one_in)
{
    u64 state = (u64)edge;
    for (i32 x = 0; x < edge; x++)
        for (i32 y = 0; y < edge; y++)
            for (i32 z = 0; z < edge; z++)
                if (vx_data_next(&state) % (u64)one_in == 0) vx_cloud_add(to, x, y, z);
}

/* Edges that give 105,000 to 112,000 voxels each. */
static void make_noise5(struct vx_cloud_rows *to)
{
    noise(to, 128, 20);
}

static void make_noise1(struct vx_cloud_rows *to)
{
    noise(to, 224, 100);
}

static void make_noise01(struct vx_cloud_rows *to)
{
    noise(to, 480, 1000);
}

/* --- a tree --- */

#define TREE_DEPTH  9
#define TREE_FORKS  3
#define TREE_LENGTH 60.0 /* voxels of the trunk */
#define TREE_SHRINK 0.7  /* of a branch's length, from one fork to the next */
#define TREE_SPREAD 0.8  /* how far a branch turns from the one it grows on */
#define TREE_STEP   0.5  /* voxels; less than one, so that a branch has no gaps */
#define TREE_WAIT   (TREE_DEPTH * TREE_FORKS + 1)

struct branch {
    f64 at[3], along[3], length;
    i32 depth;
};

/* A number in [-1, 1). */
static f64 signed_unit(u64 *state)
{
    return (f64)(vx_data_next(state) >> 11) / (f64)((u64)1 << 52) - 1;
}

static void branch_grow(struct vx_cloud_rows *to, struct branch *branch)
{
    for (f64 grown = 0; grown < branch->length; grown += TREE_STEP) {
        vx_cloud_add(to, (i32)floor(branch->at[0]), (i32)floor(branch->at[1]),
                     (i32)floor(branch->at[2]));
        for (int axis = 0; axis < 3; axis++)
            branch->at[axis] += TREE_STEP * branch->along[axis];
    }
}

static struct branch branch_fork(const struct branch *from, u64 *state)
{
    struct branch fork = *from;
    f64 square = 0;
    for (int axis = 0; axis < 3; axis++) {
        fork.along[axis] += TREE_SPREAD * signed_unit(state);
        square += fork.along[axis] * fork.along[axis];
    }
    for (int axis = 0; axis < 3; axis++) fork.along[axis] /= sqrt(square) + 1e-9;
    fork.length *= TREE_SHRINK;
    fork.depth++;
    return fork;
}

static void make_tree(struct vx_cloud_rows *to)
{
    struct branch waiting[TREE_WAIT] = {{.along = {0, 0, 1}, .length = TREE_LENGTH}};
    i32 count = 1;
    u64 state = 1;
    while (count > 0) {
        struct branch branch = waiting[--count];
        branch_grow(to, &branch);
        for (i32 fork = 0; branch.depth < TREE_DEPTH && fork < TREE_FORKS; fork++) {
            VX_ASSERT(count < TREE_WAIT);
            waiting[count++] = branch_fork(&branch, &state);
        }
    }
}

/* --- a room --- */

/* All in voxels of 3 cm.  A scanner turns once at each of its places; each beam ends at the
 * nearest wall or box, a little before or behind it. */
#define ROOM_TURNS 1500 /* beams of one turn */
#define ROOM_TILTS 260  /* beams from the floor to the ceiling */
#define ROOM_TILT  1.3  /* radians above and below the horizon */
#define ROOM_NOISE 0.15 /* voxels */

struct box {
    f64 low[3], high[3];
};
static const struct box room = {{0.5, 0.5, 0.5}, {200.5, 167.5, 90.5}};
static const struct box furniture[] = {
    {{10, 20, 0}, {40, 100, 66}},   {{80, 60, 22}, {130, 90, 25}}, /* cupboard, table */
    {{82, 62, 0}, {85, 65, 22}},    {{125, 62, 0}, {128, 65, 22}}, /* its legs */
    {{82, 85, 0}, {85, 88, 22}},    {{125, 85, 0}, {128, 88, 22}},
    {{150, 5, 0}, {195, 35, 14}},   {{150, 1, 14}, {195, 5, 30}}, /* seat and back */
    {{60, 140, 0}, {110, 165, 40}}, {{170, 120, 0}, {198, 160, 75}},
    {{95, 100, 0}, {110, 115, 15}},
};
static const f64 places[][3] = {{70, 45, 50}, {140, 110, 50}};

/* Where the ray enters the box and leaves it, in lengths of `along`; false: it misses. */
static bool box_hit(const struct box *box, const f64 from[3], const f64 along[3],
                    f64 *enter, f64 *leave)
{
    *enter = -INFINITY;
    *leave = INFINITY;
    for (int axis = 0; axis < 3; axis++) {
        f64 low = (box->low[axis] - from[axis]) / along[axis];
        f64 high = (box->high[axis] - from[axis]) / along[axis];
        *enter = fmax(*enter, fmin(low, high));
        *leave = fmin(*leave, fmax(low, high));
    }
    return *enter <= *leave && *leave > 0;
}

static f64 beam_length(const f64 from[3], const f64 along[3])
{
    f64 enter, leave, length = 0;
    if (box_hit(&room, from, along, &enter, &leave)) length = leave;
    for (size_t i = 0; i < VX_COUNT(furniture); i++)
        if (box_hit(&furniture[i], from, along, &enter, &leave) && enter > 0 &&
            enter < length)
            length = enter;
    return length;
}

static void make_room(struct vx_cloud_rows *to)
{
    u64 state = 2;
    for (size_t place = 0; place < VX_COUNT(places); place++)
        for (i32 turn = 0; turn < ROOM_TURNS; turn++)
            for (i32 beam = 0; beam < ROOM_TILTS; beam++) {
                /* Half a step aside: no beam is parallel to a wall. */
                f64 a = 2 * PI * (turn + 0.5) / ROOM_TURNS;
                f64 tilt = ROOM_TILT * (2 * (beam + 0.5) / ROOM_TILTS - 1);
                f64 along[3] = {cos(a) * cos(tilt), sin(a) * cos(tilt), sin(tilt)};
                f64 length =
                    beam_length(places[place], along) + ROOM_NOISE * signed_unit(&state);
                vx_cloud_add(to, (i32)floor(places[place][0] + length * along[0]),
                             (i32)floor(places[place][1] + length * along[1]),
                             (i32)floor(places[place][2] + length * along[2]));
            }
}

const struct vx_cloud_maker vx_cloud_makers[] = {
    {"torus", make_torus},   {"cube", make_cube},       {"plane", make_plane},
    {"tree", make_tree},     {"room", make_room},       {"noise5", make_noise5},
    {"noise1", make_noise1}, {"noise01", make_noise01},
};
const i32 vx_cloud_makers_count = (i32)VX_COUNT(vx_cloud_makers);
