/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/tools/workbench.h"

#include "engine/base/process/check.h"
#include "engine/base/process/print.h"
#include "engine/base/process/thread.h"
#include "engine/base/text/quantity.h"
#include "engine/base/text/typed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BAR_CELLS        30
#define DEVICE_INDEX_MAX 63 /* devices of one machine */
#define FLAGS_MAX        32 /* of one tool */

static const char *program = "voxeld-tools";

void vx_tool_program_set(const char *name)
{
    program = name;
}

const char *vx_tool_program(void)
{
    return program;
}

static void print_usage(void (*print)(const char *format, ...), const char *usage)
{
    const char *rest = strstr(usage, "\n\n");
    VX_ASSERT(rest);
    print("%s ", program);
    for (const char *line = usage; line < rest;) {
        int length = (int)strcspn(line, "\n") + 1;
        print("%.*s", length, line);
        line += length;
        if (line < rest) print("%*s", (int)strlen(program) + 1, "");
    }
    print("%s", rest + 1);
}

bool vx_tool_help(int count, char **arguments, const char *usage)
{
    if (!vx_help_asked(count, arguments)) return false;
    print_usage(vx_print, usage);
    return true;
}

void vx_tool_print_usage(const char *usage)
{
    print_usage(vx_print_error, usage);
}

static bool flag_unknown(const char *word, const struct vx_flag *flags, size_t count)
{
    const char *names[FLAGS_MAX];
    char nearest[VX_NEAREST_BYTES];
    VX_ASSERT(count <= FLAGS_MAX);
    for (size_t i = 0; i < count; i++) names[i] = flags[i].name;
    vx_print_error("unknown option \"%s\"%s (--help explains them)\n", word,
                   vx_nearest_text(word, names, count, nearest));
    return false;
}

bool vx_flags_parse(int count, char **arguments, const struct vx_flag *flags,
                    size_t flags_count)
{
    for (int i = 0; i < count; i += 2) {
        size_t at = 0;
        while (at < flags_count && strcmp(flags[at].name, arguments[i])) at++;
        if (at == flags_count) return flag_unknown(arguments[i], flags, flags_count);
        if (i + 1 == count) {
            vx_print_error("expected a value after %s\n", arguments[i]);
            return false;
        }
        *flags[at].value = arguments[i + 1];
    }
    return true;
}

bool vx_flag_number(const char *name, const char *text, i64 least, i64 most, i64 *number)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < least || value > most) {
        vx_print_error("expected %s as a whole number from %lld to %lld, got \"%s\"\n",
                       name, (long long)least, (long long)most, text);
        return false;
    }
    *number = value;
    return true;
}

bool vx_flag_bytes(const char *name, const char *text, i64 least, i64 most, i64 *bytes)
{
    char suffixes[VX_QUANTITY_SUFFIXES_BYTES];
    if (vx_quantity_parse("bytes", text, bytes) && *bytes >= least && *bytes <= most)
        return true;
    vx_print_error("expected %s as a whole number of bytes from %lld to %lld%s, got "
                   "\"%s\"\n",
                   name, (long long)least, (long long)most,
                   vx_quantity_suffixes("bytes", suffixes), text);
    return false;
}

const char *vx_flag_word(const char *list, char word[64])
{
    if (!list || !*list) return NULL;
    size_t length = strcspn(list, ",");
    size_t kept = length < 63 ? length : 63;
    memcpy(word, list, kept);
    word[kept] = 0;
    return list + length + (list[length] == ',');
}

bool vx_workbench_device(const char *text, enum vx_gpu_vendor *vendor, i32 *index)
{
    static const struct {
        const char *name;
        enum vx_gpu_vendor vendor;
    } vendors[] = {{"cuda", VX_GPU_CUDA}, {"hip", VX_GPU_HIP}, {"fake", VX_GPU_FAKE}};
    const size_t length = strcspn(text, ":");
    *index = 0;
    for (size_t i = 0; i < VX_COUNT(vendors); i++) {
        if (strlen(vendors[i].name) != length ||
            strncmp(text, vendors[i].name, length) != 0)
            continue;
        *vendor = vendors[i].vendor;
        if (!text[length]) return true;
        char *end;
        long value = strtol(text + length + 1, &end, 10);
        *index = (i32)value;
        return end != text + length + 1 && !*end && value >= 0 &&
               value <= DEVICE_INDEX_MAX;
    }
    return false;
}

vx_status vx_workbench_open(const struct vx_workbench_wanted *wanted, struct vx_why *why,
                            struct vx_workbench *bench)
{
    const char *device = wanted->device ? wanted->device : "cuda:0";
    struct vx_gpu_options options = {.library = wanted->driver};
    vx_status status = VX_OK;
    *bench = (struct vx_workbench){.gpu = NULL};
    VX_ENSURE_WHY(vx_workbench_device(device, &options.vendor, &options.index), why,
                  INVALID_ARGUMENT, "not a device",
                  "expected a device such as cuda:0, hip:0 or fake, got \"%s\"", device);
    bench->fake = options.vendor == VX_GPU_FAKE;
    vx_thread_enter(VX_ROLE_DEVICE);
    VX_TRY_OR(status, fail, vx_gpu_open(&options, why, &bench->gpu));
    const struct vx_jit_options jit = {.arch = vx_gpu_arch(bench->gpu),
                                       .directory = wanted->cache,
                                       .compiler = wanted->compiler,
                                       .texts = wanted->texts};
    VX_TRY_OR(status, fail, vx_jit_open(&jit, why, &bench->jit));
    VX_TRY_OR(status, fail, vx_kernel_set_open(bench->gpu, bench->jit, why, &bench->set));
    VX_TRY_OR(status, fail, vx_gpu_stream_open(bench->gpu, why, &bench->stream));
    return VX_OK;
fail:
    vx_workbench_close(bench);
    return status;
}

void vx_workbench_close(struct vx_workbench *bench)
{
    if (bench->stream) vx_gpu_stream_close(bench->gpu, &bench->stream);
    if (bench->set) vx_kernel_set_close(&bench->set);
    if (bench->jit) vx_jit_close(&bench->jit);
    if (bench->gpu) vx_gpu_close(&bench->gpu);
}

void vx_tool_progress(const char *what, i64 done, i64 total)
{
    static const char cells[] = "##############################";
    static const char blanks[] = "                              ";
    _Static_assert(sizeof cells == BAR_CELLS + 1, "one character for each cell");
    if (!isatty(STDERR_FILENO) || total <= 0) return;
    int full = (int)(done * BAR_CELLS / total);
    vx_print_error("\r%-10s [%.*s%.*s] %lld/%lld ", what, full, cells, BAR_CELLS - full,
                   blanks, (long long)done, (long long)total);
    if (done >= total) vx_print_error("\r\033[K");
}
