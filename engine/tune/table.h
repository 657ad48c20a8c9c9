/* table - tuning results of one device: the fastest tile of each algorithm, as text.
 *
 *   voxeld-tune 2 NVIDIA H200
 *   8c1f22ab03de 256 256 27 FP16 131072 3 masked 128,128,32,3,2,2 574400
 *
 * The columns: the first 12 digits of the SHA-256 of the kernel's sources; Ci, Co
 * (padded) and V; the type; the least N of its class (size.h); the density (density.h), as the eighth that
 * pairs / (N*V) falls in: 0 sparse, 3 surface; the algorithm; the values of the tile's
 * macros; nanoseconds.  All but the last two are the key, and the rows are sorted by it.
 * Another eighth is read as 3.  Files of version 1, which have the bit length of N, are read.  Rows whose hash is no longer the kernel's stay
 * in the file, but pick.h ignores them.  A line that is not of this form is an error that
 * names the line.
 *
 *   VX_TRY(vx_tune_table_open(device_name, &why, &table));
 *   VX_TRY(vx_tune_table_read(table, path, &why));       (a missing file has no rows)
 *   VX_TRY(vx_tune_table_put(table, &row, &why));        (replaces the row of its key)
 *   VX_TRY(vx_tune_table_write(table, path, &why));      (new file, synced, renamed)
 *   vx_tune_table_close(&table);
 *
 * Owner    the caller.
 * Thread   one at a time; once filled, find may run on any.
 * Limits   VX_TUNE_ROWS_MAX rows, VX_TUNE_LINE_BYTES a line, VX_TUNE_FILE_BYTES.
 * Fails    INVALID_ARGUMENT a file that is not of this form or of another device;
 *          RESOURCE_EXHAUSTED too many rows; UNAVAILABLE the file system refuses.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_TUNE_TABLE_H
#define VX_ENGINE_TUNE_TABLE_H

#include "engine/gpu/conv/conv.h"
#include "engine/tune/density.h"
#include "engine/tune/size.h"

/* 12 hex digits distinguish 2^48 sources; a kernel has had some hundred. */
#define VX_TUNE_HASH_BYTES 13
/* 6 algorithms x 50 sizes x 100 distinct layers is 30 000. */
#define VX_TUNE_ROWS_MAX 32768
/* The longest row: hash, seven numbers, a name, eight values of a tile. */
#define VX_TUNE_LINE_BYTES 256
#define VX_TUNE_FILE_BYTES ((size_t)VX_TUNE_ROWS_MAX * 128)
/* Eighths of pairs / (N*V). */
#define VX_TUNE_FILLS 8

struct vx_tune_row {
    char hash[VX_TUNE_HASH_BYTES];
    i32 ci, co, v;
    enum vx_number type;
    i32 size; /* the class of N */
    enum vx_density density;
    enum vx_conv_algorithm algorithm;
    struct vx_tile tile; /* values; those past the spec's macros are 0 */
    i64 ns;
};
struct vx_tune_table;

const char *vx_tune_type_name(enum vx_number type);    /* "FP16" "BF16" "TF32" "FP32" */
enum vx_number vx_tune_type_of_name(const char *name); /* any case; 0 = no such type */
/* The key of a problem; hash, algorithm, tile and ns are the caller's to fill. */
void vx_tune_row_make(const struct vx_conv_problem *problem, struct vx_tune_row *row);

VX_MUST_USE vx_status vx_tune_table_open(const char *device, struct vx_why *why,
                                         struct vx_tune_table **table);
void vx_tune_table_close(struct vx_tune_table **table);
const char *vx_tune_table_device(const struct vx_tune_table *table);
i32 vx_tune_table_count(const struct vx_tune_table *table);
const struct vx_tune_row *vx_tune_table_row(const struct vx_tune_table *table, i32 index);
/* The row with the key of `row`; NULL = none. */
const struct vx_tune_row *vx_tune_table_find(const struct vx_tune_table *table,
                                             const struct vx_tune_row *row);
VX_MUST_USE vx_status vx_tune_table_put(struct vx_tune_table *table,
                                        const struct vx_tune_row *row,
                                        struct vx_why *why);
/* Adds all rows of a text, which errors call `name`; on failure, adds none. */
VX_MUST_USE vx_status vx_tune_table_parse(struct vx_tune_table *table, const char *name,
                                          const char *text, size_t bytes,
                                          struct vx_why *why);
VX_MUST_USE vx_status vx_tune_table_read(struct vx_tune_table *table, const char *path,
                                         struct vx_why *why);
VX_MUST_USE vx_status vx_tune_table_write(const struct vx_tune_table *table,
                                          const char *path, struct vx_why *why);
/* One line of the file, with its newline; returns its length. */
size_t vx_tune_row_print(const struct vx_tune_row *row, char line[VX_TUNE_LINE_BYTES]);

#endif
