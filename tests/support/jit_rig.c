/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/jit_rig.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TILES 40

static const char scale_text[] =
    "#include \"kernels/90_scale.h\"\n"
    "#include \"kernels/device.h\"\n"
    "#ifndef VX_ROWS\n#define VX_ROWS 64\n#define VX_ADD 0\n#endif\n"
    "VX_KERNEL(VX_ROWS, 1) scale(struct scale_args args)\n"
    "{\n"
    "    int64_t i = (int64_t)vx_block_x() * VX_ROWS + vx_thread();\n"
    "    vx_element *x = (vx_element *)args.x;\n"
    "    if (i < args.n)\n"
    "        x[i] = vx_element_of(vx_float_of(x[i]) * args.factor + VX_ADD);\n"
    "}\n";
static const char count_text[] =
    "#include \"kernels/90_scale.h\"\n"
    "#include \"kernels/device.h\"\n"
    "VX_KERNEL(32, 1) count(struct count_args args)\n"
    "{\n"
    "    if (vx_thread() == 0) vx_atomic_add(args.count, 1);\n"
    "}\n";
static const char header_text[] = "#include <stdbool.h>\n#include <stddef.h>\n"
                                  "#include <stdint.h>\n"
                                  "struct scale_args {\n"
                                  "    int64_t n;\n    float factor;\n    void *x;\n};\n"
                                  "struct count_args {\n    uint32_t *count;\n};\n";

void jit_rig_write(const struct jit_rig *rig, const char *name, const char *text)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", rig->texts, name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

void jit_rig_open(struct jit_rig *rig)
{
    (void)snprintf(rig->root, sizeof rig->root, "/tmp/vx-jit-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(rig->root));
    (void)snprintf(rig->texts, sizeof rig->texts, "%s/texts", rig->root);
    (void)snprintf(rig->cache, sizeof rig->cache, "%s/cache", rig->root);
    ck_assert_int_eq(mkdir(rig->texts, 0700), 0);
    jit_rig_write(rig, "90_scale.cu", scale_text);
    jit_rig_write(rig, "91_count.cu", count_text);
    jit_rig_write(rig, "90_scale.h", header_text);
}

static void remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    if (!folder) return;
    for (const struct dirent *it = readdir(folder); it; it = readdir(folder))
        (void)unlinkat(dirfd(folder), it->d_name, 0);
    closedir(folder);
    ck_assert_int_eq(rmdir(path), 0);
}

void jit_rig_close(struct jit_rig *rig)
{
    remove_folder(rig->texts);
    remove_folder(rig->cache);
    remove_folder(rig->root);
}

struct vx_jit *jit_rig_jit(const struct jit_rig *rig, const char *arch)
{
    const struct vx_jit_options options = {
        .arch = arch, .directory = rig->cache, .texts = rig->texts};
    struct vx_why why = {""};
    struct vx_jit *jit;
    vx_status status = vx_jit_open(&options, &why, &jit);
    if (status.fault) ck_abort_msg("%s", vx_status_text(status, &why));
    return jit;
}

/* --- the specs --- */

static const char *const macros[] = {"VX_ROWS", "VX_ADD"};
#define FIVE(rows_)                                                                      \
    {{rows_, 0}}, {{rows_, 1}}, {{rows_, 2}}, {{rows_, 3}},                              \
    {                                                                                    \
        {                                                                                \
            rows_, 4                                                                     \
        }                                                                                \
    }
static const struct vx_tile tiles[TILES] = {FIVE(32),  FIVE(64),  FIVE(96),  FIVE(128),
                                            FIVE(160), FIVE(192), FIVE(224), FIVE(256)};

static i32 scale_threads(const struct vx_tile *tile)
{
    return tile->values[0];
}

static struct vx_grid scale_grid(const struct vx_tile *tile, const void *args)
{
    const struct scale_args *it = args;
    i64 blocks = (it->n + tile->values[0] - 1) / tile->values[0];
    return (struct vx_grid){(u32)blocks, 1, 1};
}

/* F16 is scaled as a number of 16 bits: a test only asks which type came. */
static void scale_ref(const void *args, enum vx_number type)
{
    const struct scale_args *it = args;
    for (i64 i = 0; i < it->n; i++) {
        if (type == VX_NUMBER_F32) ((f32 *)it->x)[i] *= it->factor;
        if (type == VX_NUMBER_F16) ((u16 *)it->x)[i] = (u16)it->factor;
    }
}

const struct vx_kernel_spec scale_spec = {
    .name = "scale",
    .source = "90_scale.cu",
    .macros = macros,
    .macros_count = 2,
    .tiles = tiles,
    .tiles_count = TILES,
    .types = 1u << VX_NUMBER_F32 | 1u << VX_NUMBER_F16,
    .args_bytes = sizeof(struct scale_args),
    .threads = scale_threads,
    .grid = scale_grid,
    .ref = scale_ref,
};

static i32 count_threads(const struct vx_tile *tile)
{
    ck_assert_ptr_null(tile);
    return 32;
}

static i32 count_shared(const struct vx_tile *tile, enum vx_number type)
{
    ck_assert_ptr_null(tile);
    ck_assert_int_eq(type, 0);
    return 64 << 10;
}

static struct vx_grid count_grid(const struct vx_tile *tile, const void *args)
{
    (void)tile;
    (void)args;
    return (struct vx_grid){1, 1, 1};
}

static void count_ref(const void *args, enum vx_number type)
{
    (void)type;
    const struct count_args *it = args;
    ++*it->count;
}

const struct vx_kernel_spec count_spec = {
    .name = "count",
    .source = "91_count.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct count_args),
    .threads = count_threads,
    .shared = count_shared,
    .grid = count_grid,
    .ref = count_ref,
};

const struct vx_kernel_spec *jit_rig_find(const char *name)
{
    if (!strcmp(name, "scale")) return &scale_spec;
    return strcmp(name, "count") ? NULL : &count_spec;
}
