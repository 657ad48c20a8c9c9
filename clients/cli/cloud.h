/* cloud - points on a grid: every voxel once, in the order of their first points.
 *
 * Points that share a voxel are merged and counted.  If the file has integers and no size
 * is given, its rows are voxels: two rows with the same voxel are then an error.
 *
 *   struct cloud cloud;
 *   if (cloud_make(&points, size, &cloud, &error)) ...
 *   cloud_fini(&cloud);
 *
 * A voxel is as large as its set has it, along each axis: its lower corner is its
 * coordinates times `size`, whatever its stride.  So is it in every file that is written.
 *
 * A point lies in voxel floor(p / size + CLOUD_NUDGE).  The nudge is for scans whose
 * points are the corners of voxels: a file of floats holds the corner 17 * size as
 * 16.9999 sizes, and it must become voxel 17.
 *
 * Owner    the caller; cloud_fini releases.  Points are borrowed for the call.
 * Thread   any.
 * Limits   POINTS_MAX points; coordinates that fit int32 (the server's range is smaller,
 *          and the server reports what is outside).
 * Fails    INVALID_ARGUMENT when float points come without a size, integers with one below
 *          1, no point has a position, a coordinate is too large, two rows of a file of voxels are the same, or
 *          feats sum to more than a float holds.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_CLOUD_H
#define VOXEL_CLIENTS_CLI_CLOUD_H

#include "clients/cli/points.h"

#define CLOUD_NUDGE (1.0 / 1024)
/* Fewer voxels may well lie apart: key points, or the corners of a test. */
#define CLOUD_SCATTER_MIN 64

/* Room for three numbers. */
#define CLOUD_SIZE_BYTES 64

struct cloud {
    int64_t count;
    int32_t *coords;  /* [count, 4]: the sample, then three axes */
    char axes[4];     /* of columns 1 to 3, "xyz" until cloud_place says another order */
    bool named;       /* the file names its axes: a .ply */
    int32_t channels; /* of feats; 0 = none */
    float *feats;     /* [count, channels]: the mean over a voxel's points; or NULL */
    double size[3]; /* of a voxel, in the file's units; 1 if integers come without one */
    bool sized;     /* it was given; else nobody said what a unit is */
    bool whole;     /* the coordinates are the file's integers, unchanged */
    /* Of the voxels of another set than the request's (sparse.h): how many voxels of the
     * request one is, "2x2x2".  `size` has it already.  "" = they are the request's. */
    char stride[CLOUD_SIZE_BYTES];
    int64_t merged;  /* points that fell into the voxel of an earlier point */
    int64_t dropped; /* points without a position: NaN or infinite */
    /* Hardly a voxel has another beside it, of CLOUD_SCATTER_MIN or more: as of positions
     * in another unit than the size's.  A cloud may be so, but a network then sees each
     * voxel alone. */
    bool scattered;
    /* Voxels with a feat that is NaN or infinite, as most numbers of an answer then are. */
    int64_t feats_odd;
    /* As in struct points. */
    bool scaled;
    char size_came[SIZE_CAME_BYTES];
    char offers[OFFERS_BYTES], unused[OFFERS_BYTES];
};

/* `size`: along every axis; 0 = the points' own, and integers stay unchanged. */
enum voxel_code cloud_make(const struct points *points, double size, struct cloud *cloud,
                           struct voxel_error *error);
/* A synthetic closed surface of exactly `count` voxels, the same for the same count.  Where a
 * sphere is larger than `shape`, it is smaller ones, side by side; zeros: any size.  Fails with
 * INVALID_ARGUMENT if the shape has fewer voxels. */
enum voxel_code cloud_make_shell(int64_t count, const int32_t shape[3],
                                 struct cloud *cloud, struct voxel_error *error);
/* INVALID_ARGUMENT if a voxel lies outside of the shape; zeros: any may. */
enum voxel_code cloud_check_shape(const struct cloud *cloud, const int32_t shape[3],
                                  struct voxel_error *error);
/* How many different samples it has. */
int32_t cloud_samples(const struct cloud *cloud);
void cloud_fini(struct cloud *cloud);
/* Whether the size is one number: the same along each axis, and not by a stride that
 * differs, which readers must see. */
bool cloud_has_cubes(const struct cloud *cloud);
/* Writes "0.1", or "0.2 0.1 0.4". */
const char *cloud_size_text(const struct cloud *cloud, char text[CLOUD_SIZE_BYTES]);

#endif
