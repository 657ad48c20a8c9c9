/* npz - NumPy's .npz as far as recordings need it: arrays in a zip, not compressed.
 *
 *   VX_TRY(vx_npz_create(path, &why, &out));
 *   VX_TRY(vx_npz_add(out, &(struct vx_npz_array){.name = "feats", .kind = 'f', ...}, &why));
 *   VX_TRY(vx_npz_close(&out, &why));           or vx_npz_drop(&out), to discard it
 *
 *   VX_TRY(vx_npz_read(path, "feats", &why, &array));
 *   vx_free(array.data);
 *
 * vx_npy_read and vx_npy_write do the same with a .npy, which is one array without a name.
 *
 * A file is written whole or not at all (engine/base/process/out.h).  Arrays are written when
 * they are added, and listed in the order of their `place`.
 *
 * Owner    the caller: a writer until close or drop, the data of an array that was read.
 * Thread   one.
 * Limits   VX_NPZ_RANK_MAX dimensions, VX_NPZ_ARRAYS_MAX arrays, files below 4 GiB: there
 *          are no zip64 fields.
 * Fails    NOT_FOUND: no file, no array; INVALID_ARGUMENT: what is no .npz, is compressed
 *          or has another type; DATA_LOSS: damage; RESOURCE_EXHAUSTED: memory, or a file
 *          of 4 GiB; UNAVAILABLE: the file cannot be written.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_TOOLS_NPZ_H
#define VX_ENGINE_TOOLS_NPZ_H

#include "engine/base/limits.h"
#include "engine/base/status.h"

#define VX_NPZ_RANK_MAX 8
/* Each layer and each output with coordinates, the request, and one to spare. */
#define VX_NPZ_ARRAYS_MAX (2 * (VX_LAYERS_MAX + VX_OUTPUTS_MAX) + 4)
/* "layer." in front of a name, "at.out." at most. */
#define VX_NPZ_NAME_BYTES (VX_NAME_BYTES + 8)

/* Row-major and little-endian. */
struct vx_npz_array {
    char name[VX_NPZ_NAME_BYTES];
    char kind; /* 'f', 'i' or 'u', as NumPy names them */
    i32 size;  /* bytes of an element */
    i32 rank;
    i64 shape[VX_NPZ_RANK_MAX];
    void *data;
    i32 place; /* of one that is written: where it is listed, the least first */
};
size_t vx_npz_bytes(const struct vx_npz_array *array);

struct vx_npz;
VX_MUST_USE vx_status vx_npz_create(const char *path, struct vx_why *why,
                                    struct vx_npz **npz);
/* Writes the array now; borrows it for the call.  No two have one name. */
VX_MUST_USE vx_status vx_npz_add(struct vx_npz *npz, const struct vx_npz_array *array,
                                 struct vx_why *why);
/* Both release; *npz becomes NULL, and may be NULL for drop. */
VX_MUST_USE vx_status vx_npz_close(struct vx_npz **npz, struct vx_why *why);
void vx_npz_drop(struct vx_npz **npz);

/* Reads one array of a file into new memory, with its checksum checked. */
VX_MUST_USE vx_status vx_npz_read(const char *path, const char *name, struct vx_why *why,
                                  struct vx_npz_array *array);

/* One array, of a file that has nothing else. */
VX_MUST_USE vx_status vx_npy_read(const char *path, struct vx_why *why,
                                  struct vx_npz_array *array);
VX_MUST_USE vx_status vx_npy_write(const char *path, const struct vx_npz_array *array,
                                   struct vx_why *why);

/* The checksum of a zip: CRC-32 as in ISO 3309; `crc` is that of the bytes before. */
u32 vx_npz_crc(u32 crc, const void *data, size_t bytes);

#endif
