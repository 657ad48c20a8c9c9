/* ply - reads the header of a .ply: its elements, their properties and types.
 *
 *   struct ply ply = {.at = file.data, .end = file.data + file.size};
 *   if (ply_header(&ply, &error)) ...
 *   ... ply.at is the first byte of the body ...
 *
 * Owner    borrows the file's bytes.
 * Thread   any.
 * Limits   PLY_ELEMENTS_MAX elements of PLY_PROPERTIES_MAX properties; names below
 *          PLY_NAME_BYTES.
 * Fails    INVALID_ARGUMENT with the line and what was expected there.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_PLY_H
#define VOXEL_CLIENTS_CLI_PLY_H

#include "clients/cli/points.h"

#define PLY_ELEMENTS_MAX   16
#define PLY_PROPERTIES_MAX 128
#define PLY_NAME_BYTES     48

struct ply_type {
    const char *name;
    const char *other; /* the newer spelling */
    int32_t bytes;
    char kind; /* i, u or f */
};

struct ply_property {
    const struct ply_type *count; /* of a list's length; NULL if it is no list */
    const struct ply_type *type;
    int32_t axis; /* 0..2 for x, y, z of a vertex, else -1 */
    bool sample;  /* it is the sample of a vertex */
    char name[PLY_NAME_BYTES];
};

struct ply_element {
    bool vertex;
    int64_t count;
    int32_t properties_count;
    struct ply_property properties[PLY_PROPERTIES_MAX];
};

struct ply {
    bool ascii;
    bool swapped; /* big-endian */
    /* From comments: the size of a voxel along each axis, 0 = none, and whether it was one
     * number; a stride that differs between axes, "2x1x4", or "". */
    double voxel_size[3];
    bool cubes;
    char stride[PLY_NAME_BYTES];
    int32_t elements_count;
    struct ply_element elements[PLY_ELEMENTS_MAX];
    const uint8_t *at; /* after ply_header the body */
    const uint8_t *end;
};

enum voxel_code ply_header(struct ply *ply, struct voxel_error *error);

#endif
