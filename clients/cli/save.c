/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/save.h"

#include "clients/c/error.h"
#include "clients/cli/convert.h"
#include "clients/cli/out.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *ending_of(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot : "";
}

enum voxel_code save_check_path(const char *path, struct voxel_error *error)
{
    const char *ending = ending_of(path);
    if (strcmp(ending, ".ply") == 0 || strcmp(ending, ".npy") == 0) return VOXEL_OK;
    return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                           "%s: expected an output that ends in .ply or .npy", path);
}

void save_position(const struct cloud *cloud, int64_t row, double xyz[3])
{
    const int32_t *at = &cloud->coords[4 * row + 1];
    for (int k = 0; k < 3; k++)
        xyz[k] = cloud->whole ? (double)at[k] : ((double)at[k] + 0.5) * cloud->size;
}

static int64_t columns_of(const struct voxel_tensor *output)
{
    int64_t columns = 1;
    for (int32_t i = 1; i < output->rank; i++) columns *= output->shape[i];
    return columns;
}

static void write_ply_header(FILE *file, const struct cloud *cloud,
                             const struct voxel_tensor *output)
{
    int64_t columns = columns_of(output);
    fprintf(file, "ply\nformat binary_little_endian 1.0\ncomment voxel_size %.9g\n",
            cloud->size);
    fprintf(file, "element vertex %" PRId64 "\n", cloud->count);
    for (int k = 0; k < 3; k++)
        fprintf(file, "property %s %c\n", cloud->whole ? "int" : "float", "xyz"[k]);
    bool normals = columns == 3 && strcmp(output->name, "normals") == 0;
    for (int64_t c = 0; c < columns; c++) {
        if (normals)
            fprintf(file, "property float n%c\n", "xyz"[c]);
        else
            fprintf(file, "property float %s_%" PRId64 "\n", output->name, c);
    }
    fprintf(file, "end_header\n");
}

static void write_ply(FILE *file, const struct cloud *cloud,
                      const struct voxel_tensor *output)
{
    int64_t columns = columns_of(output);
    write_ply_header(file, cloud, output);
    for (int64_t row = 0; row < cloud->count; row++) {
        if (cloud->whole) {
            fwrite(&cloud->coords[4 * row + 1], sizeof(int32_t), 3, file);
        } else {
            double xyz[3];
            save_position(cloud, row, xyz);
            float narrow[3] = {(float)xyz[0], (float)xyz[1], (float)xyz[2]};
            fwrite(narrow, sizeof narrow, 1, file);
        }
        for (int64_t c = 0; c < columns; c++) {
            float cell = convert_cell(output, row * columns + c);
            fwrite(&cell, sizeof cell, 1, file);
        }
    }
}

/* NumPy's name of a type; NULL for those that are widened to float. */
static const char *descr_of(enum voxel_type type)
{
    switch (type) {
    case VOXEL_BOOL: return "|b1";
    case VOXEL_UINT8: return "|u1";
    case VOXEL_INT8: return "|i1";
    case VOXEL_UINT16: return "<u2";
    case VOXEL_INT16: return "<i2";
    case VOXEL_UINT32: return "<u4";
    case VOXEL_INT32: return "<i4";
    case VOXEL_UINT64: return "<u8";
    case VOXEL_INT64: return "<i8";
    case VOXEL_FP16: return "<f2";
    case VOXEL_FP32: return "<f4";
    case VOXEL_FP64: return "<f8";
    default: return NULL;
    }
}

static void write_npy(FILE *file, const struct voxel_tensor *output)
{
    const char *descr = descr_of(output->type);
    char header[512];
    int used = snprintf(header, sizeof header,
                        "{'descr': '%s', 'fortran_order': False, 'shape': (",
                        descr ? descr : "<f4");
    int64_t cells = 1;
    for (int32_t i = 0; i < output->rank; i++) {
        used += snprintf(header + used, sizeof header - (size_t)used, "%" PRId64 ", ",
                         output->shape[i]);
        cells *= output->shape[i];
    }
    used += snprintf(header + used, sizeof header - (size_t)used, "), }");
    /* NumPy wants the data at a multiple of 64: spaces, then a newline. */
    while ((10 + used + 1) % 64 != 0) header[used++] = ' ';
    header[used++] = '\n';
    const unsigned char magic[10] = {0x93,
                                     'N',
                                     'U',
                                     'M',
                                     'P',
                                     'Y',
                                     1,
                                     0,
                                     (unsigned char)used,
                                     (unsigned char)(used >> 8)};
    fwrite(magic, sizeof magic, 1, file);
    fwrite(header, 1, (size_t)used, file);
    if (descr) {
        fwrite(output->data, 1, output->bytes, file);
        return;
    }
    for (int64_t i = 0; i < cells; i++) {
        float cell = convert_cell(output, i);
        fwrite(&cell, sizeof cell, 1, file);
    }
}

enum voxel_code save_output(const char *path, const struct cloud *cloud,
                            const struct voxel_tensor *output, struct voxel_error *error)
{
    enum voxel_code code = save_check_path(path, error);
    if (code) return code;
    bool ply = strcmp(ending_of(path), ".ply") == 0;
    if (output->type == VOXEL_BYTES ||
        (ply && (output->rank < 1 || output->shape[0] != cloud->count)))
        return voxel_error_set(
            error, VOXEL_INVALID_ARGUMENT,
            "%s: output '%s' has no row of numbers for each of the %lld voxels", path,
            output->name, (long long)cloud->count);
    struct out out;
    code = out_open(&out, path, error);
    if (code) return code;
    if (ply)
        write_ply(out.file, cloud, output);
    else
        write_npy(out.file, output);
    return out_close(&out, error);
}
