/* npz - reads points from a .npz, which is a zip of .npy files.
 *
 * If samples came in another array beside coords [N,3], ignoring them would give all
 * voxels one sample and so wrong neighbours.  Only the user knows what an array means, so
 * each array that could hold samples is refused, whatever its name, unless --one-sample
 * is set.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/npy.h"

#include "clients/c/error.h"
#include "clients/c/memory.h"
#include "clients/cli/convert.h"
#include "clients/cli/number.h"
#include "clients/cli/samples.h"
#include "clients/cli/zip.h"

#include <stdio.h>
#include <string.h>

/* The header of an array that NumPy writes is below 200 bytes. */
#define HEAD_BYTES 4096

/* The length of NAME if the entry is NAME.npy, else of the entry's whole name. */
static size_t name_bytes(const struct zip_entry *entry)
{
    size_t bytes = entry->name_bytes;
    return bytes > 4 && memcmp(entry->name + bytes - 4, ".npy", 4) == 0 ? bytes - 4
                                                                        : bytes;
}

/* True if the entry is NAME.npy. */
static bool is_array(const struct zip_entry *entry, const char *name)
{
    size_t bytes = strlen(name);
    return entry->name_bytes == bytes + 4 && name_bytes(entry) == bytes &&
           memcmp(entry->name, name, bytes) == 0;
}

/* A zip and the names of its arrays. */
struct archive {
    struct zip zip;            /* before its first entry */
    const char *feats;         /* the array that gives feats */
    char others[OFFERS_BYTES]; /* all but coords and voxel_size */
    char unused[OFFERS_BYTES]; /* those that are not read */
    bool sized;                /* there is a voxel_size */
};

/* Collects the names of all arrays; refuses a name that is read and that comes twice. */
static enum voxel_code archive_open(struct bytes file, const char *feats,
                                    struct archive *archive, struct voxel_error *error)
{
    const char *const read[] = {"coords", feats, "voxel_size"};
    bool seen[] = {false, false, false};
    *archive = (struct archive){.feats = feats};
    enum voxel_code code = zip_open(file, &archive->zip, error);
    struct zip zip = archive->zip;
    for (size_t i = 0; !code && i < zip.count; i++) {
        struct zip_entry entry;
        bool used = false;
        if (!zip_next(&zip, &entry))
            return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                                   "entry %zu of the zip's directory is damaged", i);
        for (size_t r = 0; r < sizeof read / sizeof *read; r++) {
            if (!is_array(&entry, read[r])) continue;
            /* NumPy would take the last, other readers the first. */
            if (seen[r])
                return voxel_error_set(
                    error, VOXEL_INVALID_ARGUMENT,
                    "the .npz has the array %s twice: expected it once", read[r]);
            seen[r] = used = true;
        }
        if (!is_array(&entry, "coords") && !is_array(&entry, "voxel_size"))
            offers_add(archive->others, entry.name, name_bytes(&entry));
        if (!used) offers_add(archive->unused, entry.name, name_bytes(&entry));
    }
    archive->sized = seen[2];
    return code;
}

/* Reads NAME.npy; *content is NULL if there is none.  An error names the entry. */
static enum voxel_code read_array(const struct archive *archive, const char *name,
                                  uint8_t **content, struct npy *array,
                                  struct voxel_error *error)
{
    struct zip zip = archive->zip;
    struct zip_entry entry;
    *content = NULL;
    for (size_t i = 0; i < zip.count && zip_next(&zip, &entry); i++) {
        if (!is_array(&entry, name)) continue;
        struct voxel_error why = {0};
        enum voxel_code code = zip_content(zip.file, &entry, content, error);
        if (code) return code;
        code = npy_parse((struct bytes){*content, entry.size}, array, &why);
        if (!code) return VOXEL_OK;
        return voxel_error_set(error, code, "%.*s: %s", (int)entry.name_bytes, entry.name,
                               why.text);
    }
    return VOXEL_OK;
}

/* Reads an entry's header; true if it is one line of numbers, [N] or [N,1]. */
static bool read_line(struct bytes file, const struct zip_entry *entry, struct npy *array)
{
    uint8_t head[HEAD_BYTES];
    size_t bytes = zip_head(file, entry, head, sizeof head);
    if (!npy_describe((struct bytes){head, bytes}, array)) return false;
    return strchr("iufb", array->kind) &&
           (array->rank == 1 || (array->rank == 2 && array->shape[1] == 1));
}

/* True if an array can hold samples: it has an integer for each row; or its name means
 * samples, and it has any number for each row, or several integers, such as where each
 * sample ends. */
static bool may_be_samples(struct bytes file, const struct zip_entry *entry, int64_t rows,
                           struct samples_names *names)
{
    struct npy array;
    struct samples_names one = {0};
    size_t bytes = name_bytes(entry);
    bool line = read_line(file, entry, &array);
    bool column = line && array.shape[0] == rows;
    bool whole = line && array.kind != 'f' && array.kind != 'b';
    samples_see(&one, entry->name, bytes);
    if (column || !samples_misnamed(&one)) samples_see(names, entry->name, bytes);
    if (column && whole) return true;
    return (column || (whole && array.shape[0] > 1)) && samples_split(entry->name, bytes);
}

static enum voxel_code refuse_samples(const char *name, size_t bytes,
                                      struct voxel_error *error)
{
    return voxel_error_set(
        error, VOXEL_INVALID_ARGUMENT,
        "the array '%.*s' would be ignored, but may hold the samples of the rows: put "
        "samples into column 0 of coords [N,4], or use --one-sample if all rows are one "
        "sample",
        (int)bytes, name);
}

static enum voxel_code check_samples(const struct archive *archive,
                                     const struct npy *coords, struct voxel_error *error)
{
    struct zip zip = archive->zip;
    struct zip_entry entry;
    struct samples_names names = {0};
    for (size_t i = 0; i < zip.count && zip_next(&zip, &entry); i++) {
        if (is_array(&entry, "coords") || is_array(&entry, archive->feats)) continue;
        if (may_be_samples(zip.file, &entry, coords->shape[0], &names))
            return refuse_samples(entry.name, name_bytes(&entry), error);
    }
    const char *misnamed = samples_misnamed(&names);
    return misnamed ? refuse_samples(misnamed, strlen(misnamed), error) : VOXEL_OK;
}

/* Accepts coords [N,4], or [N,3] if the user says that there is one sample or no other
 * array can hold samples. */
static enum voxel_code settle_samples(const struct archive *archive,
                                      const struct feats_asked *asked,
                                      const struct npy *coords, struct voxel_error *error)
{
    bool column = coords->shape[1] == 4;
    if (!asked->one_sample)
        return column ? VOXEL_OK : check_samples(archive, coords, error);
    if (!column) return VOXEL_OK;
    return voxel_error_set(
        error, VOXEL_INVALID_ARGUMENT,
        "--one-sample: expected coords [N,3], got [N,4], whose column 0 "
        "is the sample");
}

/* Refuses unsigned feats of 8 and 16 bits unless --raw-feats is set: they may be colours, 0
 * to 255 here but 0 to 1 from a .ply, or the bits of bfloat16, and the file does not tell
 * what the network expects. */
static enum voxel_code check_scale(const struct feats_asked *asked, const char *name,
                                   const struct npy *feats, struct voxel_error *error)
{
    if (asked->raw || feats->kind == 'i') return VOXEL_OK;
    if (feats->kind == 'u' && feats->size == 2)
        return feats_refuse_16(&(struct feats_named){"array", name, "uint16"}, error);
    if (feats->size != 1) return VOXEL_OK;
    if (feats->kind == 'b')
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "the array '%s' is bool: expected numbers; store it as "
                               "float, or use --raw-feats for 0 and 1",
                               name);
    return voxel_error_set(
        error, VOXEL_INVALID_ARGUMENT,
        "the array '%s' is uint8, which does not tell whether the network expects 0 to 1 "
        "or 0 to 255: for 0 to 1 store it as float, divided by 255; for 0 to 255 use "
        "--raw-feats",
        name);
}

/* Refuses integers that float rounds: identifiers and times would become others. */
static enum voxel_code check_whole(const char *name, const struct npy *feats,
                                   struct voxel_error *error)
{
    enum voxel_code code = VOXEL_OK;
    if (feats->kind == 'f') return code;
    for (int64_t i = 0; !code && i < feats->shape[0]; i++)
        for (int32_t c = 0; !code && c < feats->shape[1]; c++) {
            const struct convert_cell cell = {i, c, npy_cell(feats, i, c)};
            code = convert_check_whole(name, &cell, error);
        }
    return code;
}

/* Reads an array of one number, or of three; returns how many, 0 of any other array. */
static int read_numbers(const struct archive *archive, const char *name, double three[3])
{
    uint8_t *content;
    struct npy array;
    int count = 0;
    if (!read_array(archive, name, &content, &array, NULL) && content) {
        if (array.rank == 0) count = 1;
        if (array.rank == 1 && array.shape[0] == 3 && !array.fortran) count = 3;
        for (int k = 0; k < count; k++) three[k] = npy_cell(&array, 0, k);
    }
    voxel_memory_give(content);
    return count;
}

/* What a voxel_size is that is no size, for a sentence. */
static void say_size(const double *numbers, int count, char came[SIZE_CAME_BYTES])
{
    int used =
        snprintf(came, SIZE_CAME_BYTES, count ? "" : "text or an array of another shape");
    for (int k = 0; k < count; k++)
        used += snprintf(came + used, SIZE_CAME_BYTES - (size_t)used, "%s%g",
                         k ? " " : "", numbers[k]);
}

static bool are_cubes(const double size[3])
{
    return size[0] == size[1] && size[1] == size[2];
}

/* The voxel_size that save.c writes.  An array of that name that is not one positive number,
 * or three, is not used, and what it is is said.  Before its sizes were three, a file with a
 * stride that differs between axes had the size of other voxels than its own. */
static enum voxel_code read_size(const struct archive *archive, struct points *points,
                                 struct voxel_error *error)
{
    double stride[3], found[3] = {0};
    int count = read_numbers(archive, "voxel_size", found);
    bool good = count > 0;
    for (int k = 0; k < count; k++) good = good && number_is_size(found[k]);
    if (!good) say_size(found, count, points->size_came);
    if (!good) return VOXEL_OK;
    for (int k = count; k < 3; k++) found[k] = found[0];
    if (count == 1 && read_numbers(archive, "stride", stride) == 3 && !are_cubes(stride))
        return voxel_error_set(
            error, VOXEL_INVALID_ARGUMENT,
            "voxels of the stride %g %g %g are no cubes, and voxel_size is one number: "
            "expected the three sizes of these voxels",
            stride[0], stride[1], stride[2]);
    memcpy(points->voxel_size, found, sizeof found);
    return VOXEL_OK;
}

enum voxel_code points_read_npz(struct bytes file, const struct feats_asked *asked,
                                struct points *points, struct voxel_error *error)
{
    struct npy coords;
    struct npy feats;
    uint8_t *coords_bytes = NULL;
    uint8_t *feats_bytes = NULL;
    struct archive archive;
    memset(points, 0, sizeof *points);
    const char *name = asked->names ? asked->names : "feats";
    enum voxel_code code = archive_open(file, name, &archive, error);
    if (!code) code = read_array(&archive, "coords", &coords_bytes, &coords, error);
    if (!code && !coords_bytes)
        code = voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "the .npz has no array named coords; it has: %s",
                               *archive.others ? archive.others : "nothing");
    if (!code) code = read_array(&archive, name, &feats_bytes, &feats, error);
    if (!code && !feats_bytes && asked->names)
        code =
            voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                            "the .npz has no array named %s; besides coords it has: %s",
                            name, *archive.others ? archive.others : "nothing");
    if (!code) code = npy_points(&coords, feats_bytes ? &feats : NULL, points, error);
    if (!code && feats_bytes) code = check_scale(asked, name, &feats, error);
    if (!code && feats_bytes) code = check_whole(name, &feats, error);
    if (!code) code = settle_samples(&archive, asked, &coords, error);
    /* Only for integers: for other positions it would set the grid, as --voxel does. */
    points->size_idle = archive.sized && !points->whole;
    if (!code && archive.sized && points->whole)
        code = read_size(&archive, points, error);
    if (code) points_fini(points);
    memcpy(points->offers, archive.others, sizeof archive.others);
    memcpy(points->unused, archive.unused, sizeof archive.unused);
    voxel_memory_give(coords_bytes);
    voxel_memory_give(feats_bytes);
    return code;
}
