/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/tune/table.h"

#include "engine/base/memory/access.h"
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define TABLE_MAGIC 0x76785454u /* "vxTT" */
#define HEADER      "voxeld-tune 2 "
#define HEADER_1    "voxeld-tune 1 "       /* as long */
#define NS_MAX      INT64_C(1000000000000) /* a convolution of a quarter of an hour */

struct vx_tune_table {
    u32 magic;
    char device[VX_NAME_BYTES];
    i32 count;
    struct vx_tune_row *rows; /* sorted by key; room for VX_TUNE_ROWS_MAX */
};

static const struct {
    enum vx_number type;
    const char *name;
} types[] = {
    {VX_NUMBER_F32, "FP32"},  {VX_NUMBER_F16, "FP16"}, {VX_NUMBER_BF16, "BF16"},
    {VX_NUMBER_TF32, "TF32"}, {VX_NUMBER_E4M3, "FP8"},
};

const char *vx_tune_type_name(enum vx_number type)
{
    for (size_t i = 0; i < VX_COUNT(types); i++)
        if (types[i].type == type) return types[i].name;
    return "?";
}

enum vx_number vx_tune_type_of_name(const char *name)
{
    for (size_t i = 0; i < VX_COUNT(types); i++)
        if (!strcasecmp(types[i].name, name)) return types[i].type;
    return (enum vx_number)0;
}

void vx_tune_row_make(const struct vx_conv_problem *problem, struct vx_tune_row *row)
{
    *row = (struct vx_tune_row){.ci = problem->ci,
                                .co = problem->co,
                                .v = problem->v,
                                .type = problem->type,
                                .size = vx_size_class(problem->n),
                                .density = vx_density_of(problem->fill)};
}

vx_status vx_tune_table_open(const char *device, struct vx_why *why,
                             struct vx_tune_table **table)
{
    *table = NULL;
    VX_ENSURE_WHY(device[0] && strlen(device) < VX_NAME_BYTES, why, INVALID_ARGUMENT,
                  "the device's name cannot be used for a tuning table",
                  "expected a device name of 1 to %d bytes, got %zu", VX_NAME_BYTES - 1,
                  strlen(device));
    struct vx_tune_table *made = vx_alloc_zero(sizeof *made);
    struct vx_tune_row *rows = vx_alloc(VX_TUNE_ROWS_MAX * sizeof *rows);
    if (!made || !rows) {
        vx_free(made);
        vx_free(rows);
        VX_FAIL(RESOURCE_EXHAUSTED, "no memory for a tuning table");
    }
    made->magic = TABLE_MAGIC;
    made->rows = rows;
    snprintf(made->device, sizeof made->device, "%s", device);
    *table = made;
    return VX_OK;
}

void vx_tune_table_close(struct vx_tune_table **table)
{
    if (!*table) return;
    VX_ASSERT((*table)->magic == TABLE_MAGIC);
    (*table)->magic = 0;
    vx_free((*table)->rows);
    vx_free(*table);
    *table = NULL;
}

const char *vx_tune_table_device(const struct vx_tune_table *table)
{
    return table->device;
}

i32 vx_tune_table_count(const struct vx_tune_table *table)
{
    return table->count;
}

const struct vx_tune_row *vx_tune_table_row(const struct vx_tune_table *table, i32 index)
{
    VX_ASSERT(index >= 0);
    VX_ASSERT(index < table->count);
    return &table->rows[index];
}

/* The order of the file: column by column. */
static int row_compare(const struct vx_tune_row *a, const struct vx_tune_row *b)
{
    int order = strcmp(a->hash, b->hash);
    if (order) return order;
    const i64 left[] = {a->ci,       a->co,   a->v,
                        a->type,     a->size, vx_density_eighth(a->density),
                        a->algorithm};
    const i64 right[] = {b->ci,       b->co,   b->v,
                         b->type,     b->size, vx_density_eighth(b->density),
                         b->algorithm};
    for (size_t i = 0; i < VX_COUNT(left); i++)
        if (left[i] != right[i]) return left[i] < right[i] ? -1 : 1;
    return 0;
}

/* The index of the row's key, or the index where it belongs. */
static i32 table_place(const struct vx_tune_table *table, const struct vx_tune_row *row,
                       bool *found)
{
    i32 low = 0, high = table->count;
    while (low < high) {
        i32 middle = low + (high - low) / 2;
        if (row_compare(&table->rows[middle], row) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *found = low < table->count && !row_compare(&table->rows[low], row);
    return low;
}

const struct vx_tune_row *vx_tune_table_find(const struct vx_tune_table *table,
                                             const struct vx_tune_row *row)
{
    bool found;
    i32 place = table_place(table, row, &found);
    return found ? &table->rows[place] : NULL;
}

/* The newer row replaces the older one even if it is slower: sizes of one bit length
 * differ by up to a factor of two, so fewer nanoseconds do not mean a better tile. */
vx_status vx_tune_table_put(struct vx_tune_table *table, const struct vx_tune_row *row,
                            struct vx_why *why)
{
    bool found;
    i32 place = table_place(table, row, &found);
    VX_ASSERT(strlen(row->hash) == VX_TUNE_HASH_BYTES - 1);
    VX_ASSERT(row->ns >= 1);
    if (!found) {
        VX_ENSURE_WHY(table->count < VX_TUNE_ROWS_MAX, why, RESOURCE_EXHAUSTED,
                      "the tuning table is full", "expected at most %d rows of tuning",
                      VX_TUNE_ROWS_MAX);
        struct vx_tune_row *at = table->rows + place;
        memmove(at + 1, at, (size_t)(table->count - place) * sizeof *at);
        table->count++;
    }
    table->rows[place] = *row;
    return VX_OK;
}

size_t vx_tune_row_print(const struct vx_tune_row *row, char line[VX_TUNE_LINE_BYTES])
{
    i32 values = VX_TILE_VALUES_MAX;
    while (values > 1 && !row->tile.values[values - 1]) values--;
    int used = snprintf(line, VX_TUNE_LINE_BYTES, "%s %d %d %d %s %lld %d %s ", row->hash,
                        row->ci, row->co, row->v, vx_tune_type_name(row->type),
                        (long long)vx_size_first(row->size),
                        vx_density_eighth(row->density), vx_conv_name(row->algorithm));
    for (i32 i = 0; i < values; i++)
        used += snprintf(line + used, VX_TUNE_LINE_BYTES - (size_t)used, "%s%d",
                         i ? "," : "", row->tile.values[i]);
    used += snprintf(line + used, VX_TUNE_LINE_BYTES - (size_t)used, " %lld\n",
                     (long long)row->ns);
    VX_ASSERT(used < VX_TUNE_LINE_BYTES);
    return (size_t)used;
}

/* --- reading --- */

/* One line without its newline; fields are taken from its front. */
struct line {
    const char *name; /* of the file, for errors */
    const char *at, *end;
    i32 number;
    i32 version; /* that the first line said; 0 before it */
    struct vx_why *why;
};

/* The next field, which ends at a space or at the line's end, as a C string. */
static bool line_field(struct line *line, char *field, size_t bytes)
{
    const char *stop = memchr(line->at, ' ', (size_t)(line->end - line->at));
    const char *end = stop ? stop : line->end;
    size_t length = (size_t)(end - line->at);
    if (length == 0 || length >= bytes) return false;
    memcpy(field, line->at, length);
    field[length] = 0;
    /* False for a space at the end of the line: an empty field follows it. */
    line->at = stop ? stop + 1 : line->end;
    return stop ? line->at < line->end : true;
}

/* Decimal digits without sign or leading zero, inside [least, most]. */
static bool number_parse(const char *text, i64 least, i64 most, i64 *number)
{
    i64 value = 0;
    if (!text[0] || (text[0] == '0' && text[1])) return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9') return false;
        value = 10 * value + (*text - '0');
        if (value > most) return false;
    }
    *number = value;
    return value >= least;
}

static vx_status line_number(struct line *line, const char *what, i64 least, i64 most,
                             i64 *number)
{
    char field[24] = "";
    bool good =
        line_field(line, field, sizeof field) && number_parse(field, least, most, number);
    VX_ENSURE_WHY(good, line->why, INVALID_ARGUMENT,
                  "a tuning table has a malformed line",
                  "%s line %d: expected %s as a whole number from %lld to %lld",
                  line->name, line->number, what, (long long)least, (long long)most);
    return VX_OK;
}

static vx_status line_i32(struct line *line, const char *what, i64 least, i64 most,
                          i32 *number)
{
    i64 value;
    VX_TRY(line_number(line, what, least, most, &value));
    *number = (i32)value;
    return VX_OK;
}

static vx_status line_hash(struct line *line, char hash[VX_TUNE_HASH_BYTES])
{
    bool good = line_field(line, hash, VX_TUNE_HASH_BYTES) &&
                strspn(hash, "0123456789abcdef") == VX_TUNE_HASH_BYTES - 1;
    VX_ENSURE_WHY(good, line->why, INVALID_ARGUMENT,
                  "a tuning table has a malformed line",
                  "%s line %d: expected the first %d digits of a hash, in lower case",
                  line->name, line->number, VX_TUNE_HASH_BYTES - 1);
    return VX_OK;
}

static vx_status line_tile(struct line *line, struct vx_tile *tile)
{
    char field[128] = "";
    bool good = line_field(line, field, sizeof field);
    i32 count = 0;
    for (char *value = field; good && value;) {
        char *comma = strchr(value, ',');
        i64 number;
        if (comma) *comma = 0;
        good = count < VX_TILE_VALUES_MAX && number_parse(value, 0, INT32_MAX, &number);
        if (good) tile->values[count++] = (i32)number;
        value = comma ? comma + 1 : NULL;
    }
    VX_ENSURE_WHY(good, line->why, INVALID_ARGUMENT,
                  "a tuning table has a malformed line",
                  "%s line %d: expected 1 to %d values of a tile, separated by commas",
                  line->name, line->number, VX_TILE_VALUES_MAX);
    return VX_OK;
}

static vx_status line_size(struct line *line, i32 *size)
{
    i64 n, bits;
    if (line->version == 1) {
        VX_TRY(line_number(line, "the bit length of N", 1, 31, &bits));
        n = ((i64)3 << bits) / 4; /* their middle */
    } else {
        VX_TRY(line_number(line, "N", 1, INT32_MAX, &n));
    }
    *size = vx_size_class(n);
    return VX_OK;
}

static vx_status line_row(struct line *line, struct vx_tune_row *row)
{
    char field[32] = "";
    i32 eighth;
    *row = (struct vx_tune_row){.ns = 0};
    VX_TRY(line_hash(line, row->hash));
    VX_TRY(line_i32(line, "Ci", 1, VX_CHANNELS_MAX, &row->ci));
    VX_TRY(line_i32(line, "Co", 1, VX_CHANNELS_MAX, &row->co));
    VX_TRY(line_i32(line, "V", 1, VX_KERNEL_OFFSETS_MAX, &row->v));
    bool good = line_field(line, field, sizeof field);
    row->type = good ? vx_tune_type_of_name(field) : (enum vx_number)0;
    VX_ENSURE_WHY(row->type, line->why, INVALID_ARGUMENT,
                  "a tuning table has a malformed line",
                  "%s line %d: expected FP16, BF16, TF32, FP32 or FP8 as the type",
                  line->name, line->number);
    VX_TRY(line_size(line, &row->size));
    VX_TRY(line_i32(line, "the fill, in eighths,", 0, VX_TUNE_FILLS - 1, &eighth));
    row->density = eighth ? VX_DENSITY_SURFACE : VX_DENSITY_SPARSE;
    good = line_field(line, field, sizeof field);
    row->algorithm = good ? vx_conv_of_name(field) : VX_CONV_ALGORITHMS_COUNT;
    good = row->algorithm != VX_CONV_AUTO && row->algorithm < VX_CONV_ALGORITHMS_COUNT;
    VX_ENSURE_WHY(good, line->why, INVALID_ARGUMENT,
                  "a tuning table has a malformed line",
                  "%s line %d: expected the name of an algorithm such as masked",
                  line->name, line->number);
    VX_TRY(line_tile(line, &row->tile));
    VX_TRY(line_number(line, "the nanoseconds", 1, NS_MAX, &row->ns));
    VX_ENSURE_WHY(line->at == line->end, line->why, INVALID_ARGUMENT,
                  "a tuning table has a malformed line",
                  "%s line %d: expected nothing after the nanoseconds", line->name,
                  line->number);
    return VX_OK;
}

static vx_status line_header(const struct vx_tune_table *table, struct line *line)
{
    const size_t words = sizeof HEADER - 1;
    size_t length = (size_t)(line->end - line->at);
    if (length > words && !memcmp(line->at, HEADER_1, words))
        line->version = 1;
    else if (length > words && !memcmp(line->at, HEADER, words))
        line->version = 2;
    VX_ENSURE_WHY(line->version, line->why, INVALID_ARGUMENT, "not a tuning table",
                  "%s line 1: expected \"%s\" and the name of a device", line->name,
                  HEADER);
    bool same = length - words == strlen(table->device) &&
                !memcmp(line->at + words, table->device, length - words);
    VX_ENSURE_WHY(
        same, line->why, INVALID_ARGUMENT, "the tuning table is for another device",
        "%s line 1: expected the device \"%s\", got \"%.*s\"", line->name, table->device,
        (int)(length - words > 64 ? 64 : length - words), line->at + words);
    return VX_OK;
}

/* Cuts the next line from a text that is not at its end; false = it has no newline or is
 * too long. */
static bool line_next(struct line *line, const char **at, const char *end)
{
    const char *stop = memchr(*at, '\n', (size_t)(end - *at));
    line->at = *at;
    line->end = stop;
    line->number++;
    if (!stop || stop - *at >= VX_TUNE_LINE_BYTES) return false;
    *at = stop + 1;
    return true;
}

/* Reads every line; with `put` false they are only checked. */
static vx_status table_lines(struct vx_tune_table *table, const struct line *first,
                             const char *end, bool put)
{
    struct line line = *first;
    const char *at = first->at;
    struct vx_tune_row row;
    i32 rows = 0;
    do {
        VX_ENSURE_WHY(
            line_next(&line, &at, end), line.why, INVALID_ARGUMENT,
            "a tuning table has a line without a newline, or one that is too long",
            "%s line %d: expected a line of at most %d bytes with its newline", line.name,
            line.number, VX_TUNE_LINE_BYTES - 1);
        if (line.number == 1) {
            VX_TRY(line_header(table, &line));
            continue;
        }
        VX_TRY(line_row(&line, &row));
        VX_ENSURE_WHY(++rows <= VX_TUNE_ROWS_MAX - (put ? 0 : table->count), line.why,
                      RESOURCE_EXHAUSTED, "too many rows of tuning",
                      "%s line %d: expected at most %d rows", line.name, line.number,
                      VX_TUNE_ROWS_MAX);
        if (put) VX_TRY(vx_tune_table_put(table, &row, line.why));
    } while (at < end);
    return VX_OK;
}

vx_status vx_tune_table_parse(struct vx_tune_table *table, const char *name,
                              const char *text, size_t bytes, struct vx_why *why)
{
    struct line first = {.name = name, .at = text, .why = why};
    VX_ASSERT(table->magic == TABLE_MAGIC);
    VX_ENSURE_WHY(bytes <= VX_TUNE_FILE_BYTES, why, RESOURCE_EXHAUSTED,
                  "a tuning table is too large",
                  "%s: expected at most %zu bytes, got %zu", name, VX_TUNE_FILE_BYTES,
                  bytes);
    VX_ENSURE_WHY(bytes > 0, why, INVALID_ARGUMENT, "not a tuning table",
                  "%s line 1: expected \"%s\" and the name of a device", name, HEADER);
    VX_TRY(table_lines(table, &first, text + bytes, false));
    return table_lines(table, &first, text + bytes, true);
}

/* --- files --- */

static vx_status file_read(int file, char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t got = read(file, text + at, bytes - at);
        if (got < 0 && errno == EINTR) continue;
        VX_ENSURE(got > 0, UNAVAILABLE, "a tuning table cannot be read");
        at += (size_t)got;
    }
    return VX_OK;
}

vx_status vx_tune_table_read(struct vx_tune_table *table, const char *path,
                             struct vx_why *why)
{
    struct stat about = {0};
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 && errno == ENOENT) return VX_OK;
    VX_ENSURE_WHY(file >= 0, why, UNAVAILABLE, "a tuning table cannot be opened",
                  "%s: expected a readable file: %s", path, strerror(errno));
    bool good = !fstat(file, &about) && S_ISREG(about.st_mode) &&
                (size_t)about.st_size <= VX_TUNE_FILE_BYTES;
    size_t bytes = good ? (size_t)about.st_size : 0;
    char *text = good ? vx_alloc(bytes + 1) : NULL;
    vx_status status = VX_OK;
    if (text) status = file_read(file, text, bytes);
    close(file);
    if (text && !status.fault)
        status = vx_tune_table_parse(table, path, text, bytes, why);
    vx_free(text);
    VX_ENSURE_WHY(good, why, INVALID_ARGUMENT, "not a tuning table",
                  "%s: expected a regular file of at most %zu bytes, got %s", path,
                  VX_TUNE_FILE_BYTES,
                  S_ISREG(about.st_mode) ? "a larger one" : vx_access_kind(&about));
    VX_ENSURE(text, RESOURCE_EXHAUSTED, "no memory to read a tuning table");
    return status;
}

/* 0 or errno. */
static int table_write_rows(const struct vx_tune_table *table, struct vx_out *out)
{
    char line[VX_TUNE_LINE_BYTES];
    int used = snprintf(line, sizeof line, HEADER "%s\n", table->device);
    int error = vx_out_put(out, line, (size_t)used);
    for (i32 i = 0; i < table->count && !error; i++)
        error = vx_out_put(out, line, vx_tune_row_print(&table->rows[i], line));
    if (!error && out->part[0] && fsync(out->file)) error = errno;
    return error;
}

vx_status vx_tune_table_write(const struct vx_tune_table *table, const char *path,
                              struct vx_why *why)
{
    struct vx_out out;
    int error = vx_out_open(&out, path, 0644, 0);
    if (!error) error = table_write_rows(table, &out);
    error = vx_out_end(&out, error);
    VX_ENSURE_WHY(!error, why, UNAVAILABLE, "a tuning table cannot be written",
                  "%s: expected a file that can be written: %s", path, strerror(error));
    return VX_OK;
}
