/* points - the content of a file of points, and the readers of .ply, .npy and .npz.
 *
 * The user chooses the features: properties of a .ply by name, in that order, or an array
 * of a .npz (`feats`, if none is named).  8-bit unsigned properties of a .ply are
 * colours, as a rule: they are divided by 255, and `scaled` is set, unless raw values are
 * wanted.  An 8-bit unsigned or bool array of a .npz, and unsigned 16 bits of both, are an
 * error unless raw values are wanted.  A .ply may have a property `sample` of whole numbers.  Samples under another
 * name, or in another array, are an error unless `one_sample` is set.
 *
 * Readers work on memory, so that a unit test of a damaged file needs no file.  Positions
 * are doubles whatever the file has; `whole` is set if the file has integers, which are
 * voxel coordinates already.
 *
 *   const struct feats_asked asked = {.names = "red,green,blue"};
 *   struct points points;
 *   if (points_read_file("scan.ply", &asked, &points, &error)) ...
 *   points_fini(&points);
 *
 * Owner    the caller; points_fini releases.
 * Thread   any.
 * Limits   POINTS_MAX points, FEATS_MAX channels, files of FILE_BYTES_MAX.
 * Fails    INVALID_ARGUMENT with what was expected and what came, NOT_FOUND for a file
 *          that cannot be opened, DATA_LOSS for one that cannot be read, UNIMPLEMENTED
 *          for a variant that is not supported, RESOURCE_EXHAUSTED for one too large.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_POINTS_H
#define VOXEL_CLIENTS_CLI_POINTS_H

#include "clients/c/voxel.h"

/* The hash table of cloud.c has int32 rows; a message could not carry more anyway. */
#define POINTS_MAX (1 << 28)
/* As many as a network.json allows; a unit test compares it with the server's limit. */
#define FEATS_MAX 16384
/* The largest file that is read. */
#define FILE_BYTES_MAX ((size_t)8 << 30)

/* Room for a list of names, for sentences. */
#define OFFERS_BYTES 256

#define SIZE_CAME_BYTES 64

struct feats_asked {
    const char *names; /* "red,green,blue"; NULL = none of a .ply, `feats` of a .npz */
    bool raw;          /* unsigned values of 8 and 16 bits are taken as they are */
    bool one_sample;   /* all is one sample: arrays that look like samples are not */
};

struct points {
    int64_t count;
    double *xyz;          /* [count, 3]; NaN where the file has NaN */
    int32_t *sample;      /* [count], or NULL: all of sample 0 */
    int32_t channels;     /* of feats */
    float *feats;         /* [count, channels], or NULL: there are none */
    bool whole;           /* the file's coordinates are integers */
    bool named;           /* x, y and z by their names: of a .ply */
    double voxel_size[3]; /* along each axis, from the file; 0 = it has none */
    /* Of a .npz whose voxel_size is not used: of floats, which it does not place, or, in
     * `size_came`, of no number above 0, or three: "-1", "0.1 0 0.1". */
    bool size_idle;
    char size_came[SIZE_CAME_BYTES];
    bool scaled;               /* some feats were divided by 255 */
    char offers[OFFERS_BYTES]; /* what could be feats: "intensity, red"; cut if longer */
    char unused[OFFERS_BYTES]; /* those of them that were not asked for */
};

/* Chooses the reader by the ending of the file's name. */
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

/* Refuses unsigned feats of 16 bits, which do not tell what they are. */
struct feats_named {
    const char *what, *name, *type; /* "array", "feats", "uint16" */
};
enum voxel_code feats_refuse_16(const struct feats_named *feats,
                                struct voxel_error *error);

/* Appends a name to a list such as `offers`. */
void offers_add(char offers[OFFERS_BYTES], const char *name, size_t bytes);

/* Reads the whole file if it begins with `magic`, else only as many bytes as `magic` has.
 * The caller frees bytes->data with voxel_memory_give. */
enum voxel_code file_read(const char *path, const char *magic, struct bytes *bytes,
                          struct voxel_error *error);

#endif
