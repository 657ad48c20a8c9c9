/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/points.h"

#include "clients/c/error.h"
#include "clients/c/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum voxel_code file_read(const char *path, uint8_t **data, size_t *size,
                          struct voxel_error *error)
{
    *data = NULL;
    *size = 0;
    FILE *file = fopen(path, "rb");
    if (!file)
        return voxel_error_set(error, VOXEL_NOT_FOUND, "%s: %s", path, strerror(errno));
    enum voxel_code code = VOXEL_OK;
    size_t room = 0;
    /* Grown as read: the size of a pipe is not known before. */
    for (;;) {
        if (*size == room) {
            room = room ? room * 2 : 1 << 20;
            uint8_t *more =
                room <= FILE_BYTES_MAX ? voxel_memory_grow(*data, room) : NULL;
            if (!more) {
                code = voxel_error_memory(error, path, room);
                break;
            }
            *data = more;
        }
        size_t got = fread(*data + *size, 1, room - *size, file);
        *size += got;
        if (got == 0) break;
    }
    if (!code && ferror(file))
        code = voxel_error_set(error, VOXEL_DATA_LOSS, "%s: cannot be read", path);
    fclose(file);
    if (code) {
        voxel_memory_give(*data);
        *data = NULL;
    }
    return code;
}

static bool ends_with(const char *text, const char *ending)
{
    size_t length = strlen(text);
    size_t tail = strlen(ending);
    return length >= tail && strcmp(text + length - tail, ending) == 0;
}

void offers_add(char offers[OFFERS_BYTES], const char *name, size_t bytes)
{
    size_t used = strlen(offers);
    snprintf(offers + used, OFFERS_BYTES - used, "%s%.*s", used ? ", " : "", (int)bytes,
             name);
}

enum voxel_code points_read_file(const char *path, const struct feats_asked *asked,
                                 struct points *points, struct voxel_error *error)
{
    static const struct {
        const char *ending;
        enum voxel_code (*read)(struct bytes, const struct feats_asked *, struct points *,
                                struct voxel_error *);
    } readers[] = {
        {".ply", points_read_ply}, {".npy", points_read_npy}, {".npz", points_read_npz}};
    memset(points, 0, sizeof *points);
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        if (!ends_with(path, readers[i].ending)) continue;
        uint8_t *data;
        struct bytes file = {0};
        enum voxel_code code = file_read(path, &data, &file.size, error);
        if (code) return code;
        file.data = data;
        struct voxel_error inner = {0};
        code = readers[i].read(file, asked, points, &inner);
        voxel_memory_give(data);
        if (code) voxel_error_set(error, code, "%s: %s", path, inner.text);
        return code;
    }
    return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                           "%s: expected a file that ends in .ply, .npy or .npz", path);
}

void points_fini(struct points *points)
{
    voxel_memory_give(points->xyz);
    voxel_memory_give(points->sample);
    voxel_memory_give(points->feats);
    memset(points, 0, sizeof *points);
}
