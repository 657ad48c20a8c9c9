/* safetensors - reads a .safetensors file: named tensors behind a JSON header.
 *
 * A file is 8 bytes of header length (little-endian), a JSON header, and the data:
 *
 *   {"stem.weight": {"dtype": "F16", "shape": [32,27], "data_offsets": [0, 1728]},
 *    "__metadata__": {"made by": "..."}}
 *
 * The file is not trusted: open checks every bound, so that afterwards each tensor is a
 * slice inside the file, as long as it was at open.  Open reads only the header; the bytes
 * of a tensor are read when they are asked for.
 *
 *   VX_TRY(vx_safetensors_open(path, label, &why, &file));
 *   const struct vx_tensor *tensor = vx_safetensors_find(file, "stem.weight");
 *   if (tensor) VX_TRY(vx_safetensors_read_f32(file, tensor, &why, values));
 *   vx_safetensors_close(&file);
 *
 * Owner    the caller owns the file; tensors and their names are valid until close.
 * Thread   any, one at a time.  Another process may write the file meanwhile: a tensor
 *          may then have a mixture of bytes, but no read faults (source.h).
 * Limits   VX_SAFETENSORS_HEADER_BYTES_MAX, VX_TENSOR_RANK_MAX.
 * Fails    NOT_FOUND; DATA_LOSS when the file contradicts itself, or becomes shorter or
 *          unreadable while it is open; INVALID_ARGUMENT when the file is intact but not
 *          usable here; RESOURCE_EXHAUSTED.  The why names the file and the tensor.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MODEL_SAFETENSORS_H
#define VX_ENGINE_MODEL_SAFETENSORS_H

#include "engine/base/status.h"

/* VX_LAYERS_MAX layers of 5 tensors need 1 MiB; the format itself allows 100 MB. */
#define VX_SAFETENSORS_HEADER_BYTES_MAX (16 << 20)

/* Dimensions of a tensor: a 3-D convolution has 5. */
#define VX_TENSOR_RANK_MAX 8

/* Room for "[a, b, c, ...]" of a shape in an error sentence. */
#define VX_SHAPE_TEXT_BYTES 80

struct vx_tensor {
    const char *name;
    const char *dtype; /* as in the file: "F16" */
    i32 rank;
    i64 shape[VX_TENSOR_RANK_MAX];
    i64 count;            /* product of shape; 1 for rank 0 */
    size_t offset, bytes; /* in the file */
};

struct vx_safetensors;

/* `label` is the file's name in error sentences ("normals/1/weights.safetensors"); open
 * copies it. */
VX_MUST_USE vx_status vx_safetensors_open(const char *path, const char *label,
                                          struct vx_why *why,
                                          struct vx_safetensors **file);
/* The same from memory, which must stay valid until close. */
VX_MUST_USE vx_status vx_safetensors_parse(const u8 *data, size_t bytes,
                                           const char *label, struct vx_why *why,
                                           struct vx_safetensors **file);
void vx_safetensors_close(struct vx_safetensors **file);

i32 vx_safetensors_count(const struct vx_safetensors *file);
/* The tensor number `index`, 0 .. count - 1, in order of names. */
const struct vx_tensor *vx_safetensors_get(const struct vx_safetensors *file, i32 index);
/* NULL when there is no such tensor. */
const struct vx_tensor *vx_safetensors_find(const struct vx_safetensors *file,
                                            const char *name);
const char *vx_safetensors_label(const struct vx_safetensors *file);

/* Writes tensor->count values to `out`.  INVALID_ARGUMENT for a dtype other than F32, F16
 * and BF16. */
VX_MUST_USE vx_status vx_safetensors_read_f32(const struct vx_safetensors *file,
                                              const struct vx_tensor *tensor,
                                              struct vx_why *why, f32 *out);
/* True for F32, F16 and BF16. */
bool vx_tensor_is_readable(const struct vx_tensor *tensor);
/* Whether a readable tensor holds neither NaN nor infinity.  Reads it again, up to the
 * first such number. */
VX_MUST_USE vx_status vx_safetensors_is_finite(const struct vx_safetensors *file,
                                               const struct vx_tensor *tensor,
                                               struct vx_why *why, bool *finite);

/* "[32, 3, 3, 3, 1]", cut to fit. */
const char *vx_shape_text(const i64 *shape, i32 rank, char out[VX_SHAPE_TEXT_BYTES]);

#endif
