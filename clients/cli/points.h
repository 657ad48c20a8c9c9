/* points - what a file of points holds, and the readers of .ply, .npy and .npz.
 *
 * Features are what is asked for: properties of a .ply by name, in that order, or an array of
 * a .npz (feats, if none is named).  8-bit unsigned properties, which colours are, are divided
 * by 255 unless raw values are wanted; `scaled` says that it was done.  Such an array of a .npz
 * is an error unless they are.  A .ply may have a property `sample` of whole numbers; samples
 * under another name, or in another array, are an error unless there is one only.
 *
 * Readers work on memory, so that a damaged file is a unit test and not a file. Positions
 * are doubles whatever the file has; `whole` says that the file had integers, which then
 * are voxel coordinates already.
 *
 *   struct points points;
 *   if (points_read_file("scan.ply", &(struct feats_asked){.names = "red,green,blue"},
 *                        &points, &error)) ...
 *   points_fini(&points);
 *
 * Owner    the caller; points_fini releases.
 * Thread   any.
 * Limits   POINTS_MAX points, FEATS_MAX channels, files of FILE_BYTES_MAX.
 * Fails    INVALID_ARGUMENT with what was expected and what came, NOT_FOUND for a file
 * that cannot be opened, UNIMPLEMENTED for a variant that is not read.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_POINTS_H
#define VOXEL_CLIENTS_CLI_POINTS_H

#include "clients/c/voxel.h"

/* Indices of points are int32 in the hash; a message could not carry more anyway. */
#define POINTS_MAX (1 << 28)
/* As many as a network.json may say; a unit test holds it against the server's limit. */
#define FEATS_MAX 16384
/* What a program can hold comfortably; also bounds what a .npz may inflate to. */
#define FILE_BYTES_MAX ((size_t)8 << 30)

/* Names of what a file could give as features, for sentences. */
#define OFFERS_BYTES 256

struct feats_asked {
    const char *names; /* "red,green,blue"; NULL = none of a .ply, `feats` of a .npz */
    bool raw;          /* 8-bit values as they are */
    bool one_sample;   /* what looks like samples under another name is something else */
};

struct points {
    int64_t count;
    double *xyz;               /* [count, 3]; may hold NaN when the file does */
    int32_t *sample;           /* [count], or NULL: all of sample 0 */
    int32_t channels;          /* of feats */
    float *feats;              /* [count, channels], or NULL: the file has none */
    bool whole;                /* integers in the file */
    double voxel_size;         /* the file's own word on it; 0 = it has none */
    bool scaled;               /* some feats were divided by 255 */
    char offers[OFFERS_BYTES]; /* "intensity, red"; cut when there are more */
    char unused[OFFERS_BYTES]; /* those of them that were not asked for */
};

/* By the file's ending. */
enum voxel_code points_read_file(const char *path, const struct feats_asked *asked,
                                 struct points *points, struct voxel_error *error);
void points_fini(struct points *points);

/* A file in memory. */
struct bytes {
    const uint8_t *data;
    size_t size;
};
enum voxel_code points_read_ply(struct bytes file, const struct feats_asked *asked,
                                struct points *points, struct voxel_error *error);
enum voxel_code points_read_npy(struct bytes file, const struct feats_asked *asked,
                                struct points *points, struct voxel_error *error);
enum voxel_code points_read_npz(struct bytes file, const struct feats_asked *asked,
                                struct points *points, struct voxel_error *error);

/* Adds a name to a list like `offers`. */
void offers_add(char offers[OFFERS_BYTES], const char *name, size_t bytes);

/* The whole file, if it begins with `magic`, else only so many bytes of it; bytes->data is freed
 * with voxel_memory_give. */
enum voxel_code file_read(const char *path, const char *magic, struct bytes *bytes,
                          struct voxel_error *error);

#endif
