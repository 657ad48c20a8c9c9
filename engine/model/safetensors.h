/* safetensors - reads a .safetensors file: named tensors behind a JSON header.
 *
 * A file is 8 bytes of header length (little-endian), the header, and data:
 *   {"stem.weight": {"dtype": "F16", "shape": [32,27], "data_offsets": [0, 1728]},
 *    "__metadata__": {"made by": "..."}}
 * It comes from the world, so nothing in it is believed: every bound is checked at open,
 * and after that a tensor is a slice that is known to lie in the file.  Alignment is
 * never assumed.
 *
 *   VX_TRY(vx_safetensors_open(path, label, &why, &file));
 *   const struct vx_tensor *tensor = vx_safetensors_find(file, "stem.weight");
 *   if (tensor) VX_TRY(vx_safetensors_read_f32(file, tensor, &why, values));
 *   vx_safetensors_close(&file);
 *
 * Owner    the caller; tensors and their names are views that end with close.
 * Thread   any, one at a time; maps the file, so a file must be replaced by rename, never
 *          rewritten in place.
 * Limits   VX_SAFETENSORS_HEADER_BYTES_MAX, VX_TENSOR_RANK_MAX.
 * Fails    NOT_FOUND; DATA_LOSS when the file contradicts itself; INVALID_ARGUMENT for
 *          what is whole but not usable here; RESOURCE_EXHAUSTED.  The why names file
 *          and tensor.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MODEL_SAFETENSORS_H
#define VX_ENGINE_MODEL_SAFETENSORS_H

#include "engine/base/status.h"

/* VX_LAYERS_MAX layers of 5 tensors need 1 MiB; the format itself stops at 100 MB. */
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
    i64 count;      /* product of shape; 1 for rank 0 */
    const u8 *data; /* at any address */
    size_t bytes;
};

struct vx_safetensors;

/* `label` is how error sentences call the file ("normals/1/weights.safetensors"); kept as
 * a copy. */
VX_MUST_USE vx_status vx_safetensors_open(const char *path, const char *label,
                                          struct vx_why *why,
                                          struct vx_safetensors **file);
/* The same from memory, which must outlive the file. */
VX_MUST_USE vx_status vx_safetensors_parse(const u8 *data, size_t bytes,
                                           const char *label, struct vx_why *why,
                                           struct vx_safetensors **file);
void vx_safetensors_close(struct vx_safetensors **file);

i32 vx_safetensors_count(const struct vx_safetensors *file);
/* By place, sorted by name. */
const struct vx_tensor *vx_safetensors_get(const struct vx_safetensors *file, i32 index);
const struct vx_tensor *vx_safetensors_find(const struct vx_safetensors *file,
                                            const char *name);
const char *vx_safetensors_label(const struct vx_safetensors *file);

/* Writes tensor->count values.  F32, F16 and BF16 are readable; any other dtype is
 * INVALID_ARGUMENT. */
VX_MUST_USE vx_status vx_safetensors_read_f32(const struct vx_safetensors *file,
                                              const struct vx_tensor *tensor,
                                              struct vx_why *why, f32 *out);
bool vx_tensor_is_readable(const struct vx_tensor *tensor);
/* Whether a readable tensor has neither NaN nor an infinity in it.  Looks at its bytes where
 * they lie: of a file that was just read no disk is asked again. */
bool vx_tensor_is_finite(const struct vx_tensor *tensor);

/* "[32, 3, 3, 3, 1]", cut to fit. */
const char *vx_shape_text(const i64 *shape, i32 rank, char out[VX_SHAPE_TEXT_BYTES]);

#endif
