/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/amd/rig.h"

#include "engine/base/process/alloc.h"

#include <check.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS_MAX 32
#define HIP_CLANG "tests/amd/hip_clang" /* tests run in the repository's root */

extern char **environ;

/* --- compiling --- */

static struct amd_image read_file(const char *path)
{
    struct stat about;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_msg(file >= 0 && !fstat(file, &about), "no file %s", path);
    struct amd_image image = {vx_alloc((size_t)about.st_size + 1), (size_t)about.st_size};
    ck_assert_ptr_nonnull(image.bytes);
    ck_assert_int_eq(read(file, image.bytes, image.count), (ssize_t)image.count);
    image.bytes[image.count] = 0;
    (void)close(file);
    return image;
}

/* hip_clang's exit code; what it writes goes to `log`. */
static int compile(const struct amd_text *text, const char *output, const char *log)
{
    char arch[64];
    (void)snprintf(arch, sizeof arch, "--offload-arch=%s", text->arch);
    const char *words[WORDS_MAX] = {
        HIP_CLANG,
        "-x",
        "hip",
        arch,
        "--offload-device-only",
        "--no-gpu-bundle-output",
        "-nogpuinc",
        "-nogpulib",
        "-O3",
        "-std=c++17",
        "-nostdinc",
        "-I",
        ".",
        "-I",
        "kernels/rtc",
        text->path,
        "-o",
        output,
    };
    i32 count = 0;
    while (words[count]) count++;
    for (i32 i = 0; text->defines && text->defines[i]; i++) {
        ck_assert_int_lt(count, WORDS_MAX - 1);
        words[count++] = text->defines[i];
    }
    posix_spawn_file_actions_t actions;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_addopen(&actions, 2, log, O_WRONLY | O_CREAT | O_TRUNC,
                                           0600);
    pid_t child = 0;
    int status = -1;
    int failed = posix_spawn(&child, HIP_CLANG, &actions, NULL, (char **)(uintptr_t)words,
                             environ);
    ck_assert_int_eq(failed, 0);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    (void)posix_spawn_file_actions_destroy(&actions);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int compile_to(const struct amd_text *text, struct amd_image *image,
                      struct amd_image *log)
{
    char folder[] = "/tmp/vx-amd-XXXXXX", output[64], log_path[64];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)snprintf(output, sizeof output, "%s/k.co", folder);
    (void)snprintf(log_path, sizeof log_path, "%s/log", folder);
    int code = compile(text, output, log_path);
    *log = read_file(log_path);
    if (!code) *image = read_file(output);
    (void)unlink(output);
    (void)unlink(log_path);
    (void)rmdir(folder);
    return code;
}

struct amd_image amd_rig_compile(const struct amd_text *text)
{
    struct amd_image image = {NULL, 0}, log;
    int code = compile_to(text, &image, &log);
    if (code)
        ck_abort_msg("%s for %s: exit code %d: %s", text->path, text->arch, code,
                     (const char *)log.bytes);
    vx_free(log.bytes);
    return image;
}

void amd_rig_refused(const struct amd_text *text, char *words, size_t bytes)
{
    struct amd_image image = {NULL, 0}, log;
    ck_assert_int_ne(compile_to(text, &image, &log), 0);
    (void)snprintf(words, bytes, "%s", (const char *)log.bytes);
    vx_free(log.bytes);
}

/* --- the device --- */

static void find(const struct amd_rig *rig, const char *name, void *to)
{
    void *found = dlsym(rig->driver.library, name);
    ck_assert_msg(found != NULL, "the stand-in has no %s", name);
    memcpy(to, &found, sizeof found);
}

void amd_rig_open(struct amd_rig *rig, const char *settings)
{
    struct vx_why why;
    *rig = (struct amd_rig){0};
    const struct vx_gpu_options options = {.vendor = VX_GPU_HIP, .library = AMD_STANDIN};
    vx_status status = vx_driver_open(&options, &why, &rig->driver);
    if (status.fault) ck_abort_msg("%s", vx_status_text(status, &why));
    find(rig, "hip_standin_set", &rig->set);
    find(rig, "hip_standin_count", &rig->count);
    find(rig, "hip_standin_why", &rig->why);
    ck_assert_msg(rig->set(settings), "settings: %s", settings);
    ck_assert_int_eq(rig->driver.init(0), 0);
    ck_assert_int_eq(rig->driver.stream_open(&rig->stream, VX_STREAM_NON_BLOCKING, 0), 0);
}

/* After a lost device too, as a process that ends in order would. */
void amd_rig_close(struct amd_rig *rig)
{
    (void)rig->driver.stream_close(rig->stream);
    for (i32 i = 0; i < AMD_RIG_MODULES_MAX && rig->modules[i]; i++)
        (void)rig->driver.module_unload(rig->modules[i]);
}

void *amd_rig_memory(struct amd_rig *rig, size_t bytes)
{
    u64 address = 0;
    ck_assert_int_eq(rig->driver.memory_open(&address, bytes), 0);
    memset((void *)(uintptr_t)address, 0, bytes);
    return (void *)(uintptr_t)address;
}

void *amd_rig_copy(struct amd_rig *rig, const void *from, size_t bytes)
{
    void *made = amd_rig_memory(rig, bytes);
    memcpy(made, from, bytes);
    return made;
}

void amd_rig_free(struct amd_rig *rig, void *memory)
{
    (void)rig->driver.memory_close((u64)(uintptr_t)memory);
}

static void *module_of(struct amd_rig *rig, const struct amd_image *image)
{
    i32 i = 0;
    while (i < AMD_RIG_MODULES_MAX && rig->images[i] && rig->images[i] != image) i++;
    ck_assert_int_lt(i, AMD_RIG_MODULES_MAX);
    if (!rig->images[i])
        ck_assert_int_eq(rig->driver.module_load(&rig->modules[i], image->bytes), 0);
    rig->images[i] = image;
    return rig->modules[i];
}

int amd_rig_start(struct amd_rig *rig, const struct amd_run *run)
{
    void *function = NULL, *module = module_of(rig, run->image);
    int code = rig->driver.function_get(&function, module, run->kernel);
    ck_assert_msg(code != VX_DRIVER_NOT_FOUND, "no kernel %s", run->kernel);
    if (code) return code; /* the device is lost */
    const struct vx_driver_launch launch = {
        .function = function,
        .grid = run->grid.x ? run->grid : (struct vx_grid){1, 1, 1},
        .threads = run->threads,
        .shared = run->shared,
        .stream = rig->stream,
        .args = run->args,
    };
    return rig->driver.start(&rig->driver, &launch);
}

int amd_rig_run(struct amd_rig *rig, const struct amd_run *run)
{
    int code = amd_rig_start(rig, run);
    return code ? code : rig->driver.stream_wait(rig->stream);
}
