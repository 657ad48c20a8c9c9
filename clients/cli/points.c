/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/points.h"

#include "clients/c/error.h"
#include "clients/c/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The part of a file that has been read. */
struct bytes_room {
    const char *path;
    uint8_t *data;
    size_t size, room;
};

#define READ_BYTES_FIRST ((size_t)1 << 20)

static enum voxel_code too_large(const char *path, struct voxel_error *error)
{
    return voxel_error_set(error, VOXEL_RESOURCE_EXHAUSTED,
                           "%s: a file of more than %zu GiB is not read", path,
                           FILE_BYTES_MAX >> 30);
}

/* Makes room for more bytes: for all of a plain file; for a pipe, whose size is not
 * known, twice as many as now. */
static enum voxel_code read_room(FILE *file, struct bytes_room *to,
                                 struct voxel_error *error)
{
    struct stat status;
    size_t room = to->room < READ_BYTES_FIRST ? READ_BYTES_FIRST : to->room * 2;
    if (!fstat(fileno(file), &status) && S_ISREG(status.st_mode)) {
        if ((uintmax_t)status.st_size > FILE_BYTES_MAX) return too_large(to->path, error);
        if ((size_t)status.st_size >= to->room) room = (size_t)status.st_size + 1;
    }
    if (room > FILE_BYTES_MAX + 1) return too_large(to->path, error);
    uint8_t *more = voxel_memory_grow(to->data, room);
    if (!more) return voxel_error_memory(error, to->path, room);
    to->data = more;
    to->room = room;
    return VOXEL_OK;
}

/* Reads all of the file.  Stops early if it does not begin with `magic`; the format's
 * reader then reports that. */
static enum voxel_code read_all(FILE *file, const char *magic, struct bytes_room *to,
                                struct voxel_error *error)
{
    size_t first = strlen(magic);
    to->data = voxel_memory_grow(NULL, first + 1);
    if (!to->data) return voxel_error_memory(error, to->path, first);
    to->room = first;
    to->size = fread(to->data, 1, first, file);
    if (to->size < first || memcmp(to->data, magic, first) != 0) return VOXEL_OK;
    for (;;) {
        enum voxel_code code = VOXEL_OK;
        if (to->size == to->room) code = read_room(file, to, error);
        if (code) return code;
        size_t got = fread(to->data + to->size, 1, to->room - to->size, file);
        to->size += got;
        if (got == 0) return VOXEL_OK;
    }
}

enum voxel_code file_read(const char *path, const char *magic, struct bytes *bytes,
                          struct voxel_error *error)
{
    struct bytes_room to = {.path = path};
    *bytes = (struct bytes){NULL, 0};
    FILE *file = fopen(path, "rb");
    if (!file)
        return voxel_error_set(error, VOXEL_NOT_FOUND, "%s: %s", path, strerror(errno));
    enum voxel_code code = read_all(file, magic, &to, error);
    if (!code && ferror(file))
        code = voxel_error_set(error, VOXEL_DATA_LOSS, "%s: cannot be read", path);
    fclose(file);
    if (code)
        voxel_memory_give(to.data);
    else
        *bytes = (struct bytes){to.data, to.size};
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

enum voxel_code feats_refuse_16(const struct feats_named *feats,
                                struct voxel_error *error)
{
    return voxel_error_set(
        error, VOXEL_INVALID_ARGUMENT,
        "the %s '%s' is %s, which does not tell whether its numbers are 0 to 65535, a "
        "share of 65535, or the bits of bfloat16: store it as float; for 0 to 65535 use "
        "--raw-feats",
        feats->what, feats->name, feats->type);
}

enum voxel_code points_read_file(const char *path, const struct feats_asked *asked,
                                 struct points *points, struct voxel_error *error)
{
    static const struct {
        const char *ending, *magic;
        enum voxel_code (*read)(struct bytes, const struct feats_asked *, struct points *,
                                struct voxel_error *);
    } readers[] = {{".ply", "ply", points_read_ply},
                   {".npy", "\x93NUMPY", points_read_npy},
                   {".npz", "PK", points_read_npz}};
    memset(points, 0, sizeof *points);
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        if (!ends_with(path, readers[i].ending)) continue;
        struct bytes file;
        enum voxel_code code = file_read(path, readers[i].magic, &file, error);
        if (code) return code;
        struct voxel_error inner = {0};
        code = readers[i].read(file, asked, points, &inner);
        voxel_memory_give((void *)(uintptr_t)file.data);
        if (code) voxel_error_set(error, code, "%s: %s", path, inner.text);
        return code;
    }
    const char *hint = "";
    if (ends_with(path, ".bin"))
        hint = "; of KITTI's .bin: p = np.fromfile(FILE, np.float32).reshape(-1, 4); "
               "np.savez(OUT, coords=p[:, :3], feats=p)";
    if (ends_with(path, ".pcd"))
        hint = "; of a .pcd: p = np.asarray(open3d.io.read_point_cloud(FILE).points); "
               "np.save(OUT, p)";
    return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                           "%s: expected a file that ends in .ply, .npy or .npz%s", path,
                           hint);
}

void points_fini(struct points *points)
{
    voxel_memory_give(points->xyz);
    voxel_memory_give(points->sample);
    voxel_memory_give(points->feats);
    memset(points, 0, sizeof *points);
}
