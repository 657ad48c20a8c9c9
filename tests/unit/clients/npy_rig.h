/* npy_rig - NumPy files made by hand, and a reader that gets exactly as many bytes as
 * they have.
 *
 *   struct rig_file coords = {0};
 *   rig_npy(&coords, 1, RIG_HEADER("<i4", "(4, 3)"));
 *   rig_put(&coords, rig_points, sizeof rig_points);
 *   rig_read(points_read_npy, coords.data, coords.size, &points, &error);
 *
 * Owner    the caller; files lie in their structs.
 * Thread   one.
 * Limits   files of 8192 bytes.
 * Fails    as a check of the test.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_UNIT_NPY_RIG_H
#define VX_TESTS_UNIT_NPY_RIG_H

#include "clients/cli/npy.h"

/* A file under construction. */
struct rig_file {
    uint8_t data[8192];
    size_t size;
};

void rig_put(struct rig_file *b, const void *data, size_t bytes);
void rig_put_text(struct rig_file *b, const char *text);
void rig_put_number(struct rig_file *b, uint64_t value, size_t bytes);

#define RIG_HEADER(descr, shape)                                                         \
    "{'descr': '" descr "', 'fortran_order': False, 'shape': " shape "}"
void rig_npy(struct rig_file *b, unsigned version, const char *header);

struct rig_zip {
    struct rig_file body;
    struct rig_file directory;
    unsigned count;
};

/* Adds an entry; `deflated` as numpy.savez_compressed does. */
void rig_zip_add(struct rig_zip *zip, const char *name, const struct rig_file *content,
                 bool deflated);
void rig_zip_end(struct rig_zip *zip);

extern const int32_t rig_points[4][3];
void rig_check_four(const struct points *points);

/* What rig_read asks for. */
extern struct feats_asked rig_asked;
/* The reader gets memory of the exact size, so that a sanitizer reports a read past
 * its end. */
enum voxel_code rig_read(enum voxel_code (*read)(struct bytes, const struct feats_asked *,
                                                 struct points *, struct voxel_error *),
                         const void *data, size_t size, struct points *points,
                         struct voxel_error *error);

#endif
