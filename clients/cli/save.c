/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/save.h"

#include "clients/c/error.h"
#include "clients/c/infer_wire.h"
#include "clients/cli/convert.h"
#include "clients/cli/npy_write.h"
#include "clients/cli/out.h"
#include "clients/cli/plain.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *ending_of(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot : "";
}

/* Makes NAME.coords.npy of NAME.npy; false if that is too long for a path. */
static bool path_beside(const char *path, struct save_beside *beside)
{
    int stem = (int)(ending_of(path) - path);
    int used = snprintf(beside->path, sizeof beside->path, "%.*s.coords.npy", stem, path);
    return used < (int)sizeof beside->path;
}

enum voxel_code save_check_path(const char *path, const char *input,
                                struct voxel_error *error)
{
    const char *ending = ending_of(path);
    bool npy = strcmp(ending, ".npy") == 0;
    struct save_beside beside = {""};
    if (strcmp(ending, ".ply") != 0 && strcmp(ending, ".npz") != 0 && !npy)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "%s: expected an output that ends in .ply, .npz or .npy",
                               path);
    if (npy && !path_beside(path, &beside))
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "the output's path is longer than %d bytes", PATH_MAX);
    enum voxel_code code = out_check_input(path, input, error);
    if (!code && npy) code = out_check_input(beside.path, input, error);
    return code;
}

/* "; --output NAME takes a, b": the outputs that have voxels, or "". */
static void others_text(const struct voxel_model_info *info, char *out, size_t bytes)
{
    size_t used = 0;
    out[0] = '\0';
    for (int32_t i = 0; i < info->outputs_count && used < bytes; i++) {
        const struct voxel_tensor_info *output = &info->outputs[i];
        char name[PLAIN_BYTES];
        bool coords = output->type == VOXEL_INT32 && output->shape[1] == 4;
        if (output->rank != 2 || coords) continue;
        used += (size_t)snprintf(out + used, bytes - used, "%s%s",
                                 used ? ", " : "; --output NAME takes ",
                                 plain_text(output->name, name));
    }
}

enum voxel_code save_check_output(const char *path, const char *picture,
                                  const char *output, const struct voxel_model_info *info,
                                  struct voxel_error *error)
{
    bool ply = path && strcmp(ending_of(path), ".ply") == 0;
    char others[512], name[PLAIN_BYTES];
    if ((!ply && !picture) || !info->outputs_count) return VOXEL_OK;
    const struct voxel_tensor_info *taken = output ? NULL : &info->outputs[0];
    for (int32_t i = 0; i < info->outputs_count && !taken; i++)
        if (strcmp(info->outputs[i].name, output) == 0) taken = &info->outputs[i];
    if (!taken || taken->rank <= 2) return VOXEL_OK;
    others_text(info, others, sizeof others);
    return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                           "%s: output '%s' is a dense tensor, which has no voxels%s%s",
                           ply ? path : picture, plain_text(taken->name, name),
                           ply ? ": write a .npy or .npz" : "", others);
}

void save_position(const struct cloud *cloud, int64_t row, double xyz[3])
{
    const int32_t *at = &cloud->coords[4 * row + 1];
    for (int k = 0; k < 3; k++)
        xyz[k] = cloud->whole ? (double)at[k] : ((double)at[k] + 0.5) * cloud->size[k];
}

static int64_t columns_of(const struct voxel_tensor *output)
{
    int64_t columns = 1;
    for (int32_t i = 1; i < output->rank; i++) columns *= output->shape[i];
    return columns;
}

static bool has_samples(const struct cloud *cloud)
{
    for (int64_t row = 0; row < cloud->count; row++)
        if (cloud->coords[4 * row] != 0) return true;
    return false;
}

/* White space ends a property's name, and a line end the whole property. */
static void write_ply_name(FILE *file, const char *name)
{
    for (; *name; name++) fputc(*name > ' ' && *name <= '~' ? *name : '_', file);
}

static void write_ply_header(FILE *file, const struct cloud *cloud,
                             const struct voxel_tensor *output)
{
    int64_t columns = columns_of(output);
    char size[CLOUD_SIZE_BYTES];
    fprintf(file, "ply\nformat binary_little_endian 1.0\ncomment voxel_size %s\n",
            cloud_size_text(cloud, size));
    if (*cloud->stride) fprintf(file, "comment stride %s\n", cloud->stride);
    fprintf(file, "element vertex %" PRId64 "\n", cloud->count);
    for (int k = 0; k < 3; k++)
        fprintf(file, "property %s %c\n", cloud->whole ? "int" : "float", "xyz"[k]);
    if (has_samples(cloud)) fprintf(file, "property int sample\n");
    bool normals = columns == 3 && strcmp(output->name, "normals") == 0;
    for (int64_t c = 0; c < columns; c++) {
        fprintf(file, "property float ");
        if (normals)
            fprintf(file, "n%c\n", "xyz"[c]);
        else {
            write_ply_name(file, output->name);
            fprintf(file, "_%" PRId64 "\n", c);
        }
    }
    fprintf(file, "end_header\n");
}

static void write_ply(FILE *file, const struct cloud *cloud,
                      const struct voxel_tensor *output)
{
    int64_t columns = columns_of(output);
    bool samples = has_samples(cloud);
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
        if (samples) fwrite(&cloud->coords[4 * row], sizeof(int32_t), 1, file);
        for (int64_t c = 0; c < columns; c++) {
            float cell = convert_cell(output, row * columns + c);
            fwrite(&cell, sizeof cell, 1, file);
        }
    }
}

/* The cloud's coordinates as a tensor that borrows them. */
static struct voxel_tensor coords_of(const struct cloud *cloud)
{
    return voxel_tensor_make("coords", VOXEL_INT32, cloud->count, 4, cloud->coords);
}

static enum voxel_code save_ply(const char *path, const struct cloud *cloud,
                                const struct voxel_tensor *output,
                                struct voxel_error *error)
{
    struct out out;
    enum voxel_code code = out_open(&out, path, error);
    if (code) return code;
    write_ply(out.file, cloud, output);
    return out_close(&out, error);
}

/* One number, or three for voxels that are no cubes. */
static struct voxel_tensor size_of(const struct cloud *cloud)
{
    const bool cubes = cloud_has_cubes(cloud);
    return (struct voxel_tensor){.name = "voxel_size",
                                 .type = VOXEL_FP64,
                                 .rank = cubes ? 0 : 1,
                                 .shape = {cubes ? 0 : 3},
                                 .data = cloud->size,
                                 .bytes = (cubes ? 1 : 3) * sizeof *cloud->size};
}

static bool has_size(const struct cloud *cloud)
{
    return !cloud->whole || !cloud_has_cubes(cloud) || cloud->size[0] != 1.0;
}

static struct voxel_tensor stride_of(const char *name, const double steps[3])
{
    return (struct voxel_tensor){.name = name,
                                 .type = VOXEL_FP64,
                                 .rank = 1,
                                 .shape = {3},
                                 .data = steps,
                                 .bytes = 3 * sizeof *steps};
}

/* The arrays of a .npz in their order. */
struct npz_arrays {
    const struct voxel_tensor *list[NPZ_ARRAYS_MAX];
    int count;
};

static void npz_add(struct npz_arrays *arrays, const struct voxel_tensor *tensor)
{
    arrays->list[arrays->count++] = tensor;
}

/* Whether who unpacks the zip would write outside of a folder, as with "../x". */
static bool is_outside(const char *name)
{
    if (*name == '/' || strchr(name, '\\')) return true;
    for (const char *at = name; at; at = strchr(at, '/') ? strchr(at, '/') + 1 : NULL)
        if (strncmp(at, "..", 2) == 0 && (at[2] == '/' || !at[2])) return true;
    return false;
}

static enum voxel_code npz_save(const char *path, const struct npz_arrays *arrays,
                                struct voxel_error *error)
{
    for (int i = 0; i < arrays->count; i++)
        if (is_outside(arrays->list[i]->name))
            return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                                   "%s: the output has the name '%s', which leads out of "
                                   "a .npz: write a .npy",
                                   path, arrays->list[i]->name);
    for (int i = 0; i < arrays->count; i++)
        for (int j = 0; j < i; j++)
            if (strcmp(arrays->list[i]->name, arrays->list[j]->name) == 0)
                return voxel_error_set(
                    error, VOXEL_INVALID_ARGUMENT,
                    "%s: the output has the name '%s', which a .npz uses itself: write "
                    "a .npy",
                    path, arrays->list[i]->name);
    struct out out;
    enum voxel_code code = out_open(&out, path, error);
    if (code) return code;
    if (npz_write(out.file, arrays->list, arrays->count)) return out_close(&out, error);
    out_drop(&out);
    return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                           "%s: 4 GiB do not fit in a .npz: write an output as .npy",
                           path);
}

static enum voxel_code save_npz(const char *path, const struct cloud *cloud,
                                const struct voxel_tensor *output,
                                struct voxel_error *error)
{
    double steps[3];
    const struct voxel_tensor coords = coords_of(cloud), size = size_of(cloud),
                              stride = stride_of("stride", steps);
    struct npz_arrays arrays = {.count = 0};
    npz_add(&arrays, &coords);
    npz_add(&arrays, output);
    if (has_size(cloud)) npz_add(&arrays, &size);
    if (*cloud->stride && voxel_stride_read(cloud->stride, steps))
        npz_add(&arrays, &stride);
    return npz_save(path, &arrays, error);
}

/* Opens both files before it writes one, and completes the coords first: an output file
 * never exists without them. */
static enum voxel_code save_npy(const char *path, const struct cloud *cloud,
                                const struct voxel_tensor *output,
                                const struct save_beside *beside,
                                struct voxel_error *error)
{
    const struct voxel_tensor coords = coords_of(cloud);
    struct out out, other;
    enum voxel_code code = out_open(&out, path, error);
    if (code) return code;
    code = out_open(&other, beside->path, error);
    if (code) {
        out_drop(&out);
        return code;
    }
    npy_write(other.file, &coords);
    npy_write(out.file, output);
    /* If the disk refuses the output, its coords must not stay behind. */
    if (fflush(out.file) != 0) {
        out_drop(&other);
        return out_close(&out, error);
    }
    code = out_close(&other, error);
    if (!code) return out_close(&out, error);
    out_drop(&out);
    return code;
}

/* A dense tensor has no voxels: it is written alone, as the array that it is. */
static enum voxel_code save_dense(const char *path, const struct voxel_tensor *output,
                                  struct voxel_error *error)
{
    struct out out;
    if (strcmp(ending_of(path), ".npz") == 0)
        return npz_save(path, &(struct npz_arrays){{output}, 1}, error);
    if (strcmp(ending_of(path), ".npy") != 0)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "%s: output '%s' is a dense tensor: write a .npy or .npz",
                               path, output->name);
    enum voxel_code code = out_open(&out, path, error);
    if (code) return code;
    npy_write(out.file, output);
    return out_close(&out, error);
}

static enum voxel_code refuse_rows(const char *path, const struct cloud *cloud,
                                   const struct voxel_tensor *output,
                                   struct voxel_error *error)
{
    return voxel_error_set(
        error, VOXEL_INVALID_ARGUMENT,
        "%s: output '%s' has no row of numbers for each of the %lld voxels", path,
        output->name, (long long)cloud->count);
}

/* Whether the output has a row of numbers for each voxel that is its own. */
static bool has_rows(const struct voxel_tensor *output, const struct cloud *cloud)
{
    return output->type != VOXEL_BYTES && output->rank >= 1 &&
           output->shape[0] == cloud->count;
}

static bool is_coords(const struct voxel_tensor *output)
{
    return output->stride && !output->coords;
}

bool save_takes_all(const char *path, const struct voxel_answer *answer)
{
    int32_t count = 0;
    for (int32_t i = 0; i < answer->outputs_count; i++)
        count += !is_coords(&answer->outputs[i]);
    return count > 1 && strcmp(ending_of(path), ".npz") == 0;
}

enum voxel_code save_all(const char *path, const struct cloud *cloud,
                         const struct voxel_answer *answer, struct voxel_error *error)
{
    struct voxel_tensor strides[VOXEL_OUTPUTS_MAX];
    char names[VOXEL_OUTPUTS_MAX][NPZ_NAME_BYTES_MAX];
    double steps[VOXEL_OUTPUTS_MAX][3];
    const struct voxel_tensor coords = coords_of(cloud), size = size_of(cloud);
    struct npz_arrays arrays = {.count = 0};
    npz_add(&arrays, &coords);
    if (has_size(cloud)) npz_add(&arrays, &size);
    for (int32_t i = 0; i < answer->outputs_count; i++) {
        const struct voxel_tensor *output = &answer->outputs[i];
        const bool apart = output->stride || output->rank > 2;
        if (output->type == VOXEL_BYTES || (!apart && !has_rows(output, cloud)))
            return refuse_rows(path, cloud, output, error);
        npz_add(&arrays, output);
        if (!output->coords || !voxel_stride_read(output->stride, steps[i])) continue;
        snprintf(names[i], sizeof names[i], "stride.%s", output->name);
        strides[i] = stride_of(names[i], steps[i]);
        npz_add(&arrays, &strides[i]);
    }
    return npz_save(path, &arrays, error);
}

enum voxel_code save_output(const char *path, const struct cloud *cloud,
                            const struct voxel_tensor *output, struct save_beside *beside,
                            struct voxel_error *error)
{
    const char *ending = ending_of(path);
    beside->path[0] = '\0';
    if (output->type != VOXEL_BYTES && output->rank > 2)
        return save_dense(path, output, error);
    if (!has_rows(output, cloud)) return refuse_rows(path, cloud, output, error);
    if (strcmp(ending, ".ply") == 0) return save_ply(path, cloud, output, error);
    if (strcmp(ending, ".npz") == 0) return save_npz(path, cloud, output, error);
    enum voxel_code code = save_check_path(path, "", error);
    if (code) return code;
    path_beside(path, beside);
    return save_npy(path, cloud, output, beside, error);
}
