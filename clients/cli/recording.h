/* recording - the results of a network's layers on one request, in a .npz.
 *
 *   coords      int [N, 4]; feats float [N, C]: the request
 *   layer.NAME  of each layer, in the network's order: [rows, C], or dense
 *   out.NAME    of each output
 *   at.NAME     int [rows, 4]: the voxels of a layer's or output's rows; without it they
 *               are the request's.  at.out.NAME is an output's alone, and counts first
 *
 * Integers are labels.  `voxeld record` writes recordings, and so does the exporter.
 *
 *   struct recording recording;
 *   if (recording_open("a.npz", &recording, &error)) ...
 *   const struct recorded *layer = recording_find(&recording, RECORDED_LAYER, "stem");
 *   if (recording_read(&recording, layer, &tensor, &error)) ...
 *   recording_give(&tensor);
 *   recording_close(&recording);
 *
 * Owner    the caller.
 * Thread   any.
 * Limits   files of FILE_BYTES_MAX; POINTS_MAX rows.
 * Fails    INVALID_ARGUMENT for what is no recording, or a damaged one; as points.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_RECORDING_H
#define VOXEL_CLIENTS_CLI_RECORDING_H

#include "clients/cli/compare.h"
#include "clients/cli/zip.h"

/* FEATS: the request's features, which are compared first. */
enum recorded_kind { RECORDED_LAYER, RECORDED_OUTPUT, RECORDED_FEATS };

struct recorded {
    enum recorded_kind kind;
    const char *name;
    struct zip_entry array, coords; /* coords.name NULL = the request's */
};

struct recording {
    const char *path;
    struct voxel_pool *pool; /* of the names */
    struct bytes file;
    uint8_t *coords_memory;
    int64_t rows;          /* of the request */
    int32_t *coords;       /* [rows, 4] */
    struct recorded *list; /* layers, then outputs, as they lie in the file */
    int32_t count, layers_count;
    struct recorded feats;
};

/* `path` is borrowed until close. */
enum voxel_code recording_open(const char *path, struct recording *recording,
                               struct voxel_error *error);
/* The same of a file in memory, which becomes the recording's, also on failure. */
enum voxel_code recording_parse(const char *path, struct bytes file,
                                struct recording *recording, struct voxel_error *error);
void recording_close(struct recording *recording);

/* NULL = there is none. */
const struct recorded *recording_find(const struct recording *recording,
                                      enum recorded_kind kind, const char *name);

struct recorded_tensor {
    struct compare_tensor tensor;
    void *memory[3];
};
/* Reads one; `tensor` also points into the recording. */
enum voxel_code recording_read(const struct recording *recording,
                               const struct recorded *recorded,
                               struct recorded_tensor *tensor, struct voxel_error *error);
void recording_give(struct recorded_tensor *tensor);

/* INVALID_ARGUMENT unless both are of the same voxels and features, in any order. */
enum voxel_code recording_same_request(const struct recording *a,
                                       const struct recording *b,
                                       struct voxel_error *error);

#endif
