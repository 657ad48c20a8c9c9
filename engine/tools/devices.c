/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/print.h"
#include "engine/gpu/driver/gpu.h"
#include "engine/tools/tools.h"
#include "engine/tools/workbench.h"

static const char usage[] =
    "devices [--gpu-driver LIB] [--hip-library LIB]\n"
    "\n"
    "Lists the GPUs of this machine by their --device names; if there is no driver,\n"
    "prints what was tried to find one.  Exit code 1: a GPU exists but cannot be used.\n"
    "\n"
    "  --gpu-driver, --hip-library   libcuda and libamdhip64; none = search\n";

static bool print_device(const struct vx_gpu_options *options, const char *word)
{
    struct vx_why why = {""};
    struct vx_gpu *gpu;
    vx_status status = vx_gpu_open(options, &why, &gpu);
    if (status.fault) {
        vx_print("%s:%d  %s\n", word, options->index, vx_status_text(status, &why));
        return false;
    }
    const struct vx_caps *caps = vx_gpu_caps(gpu);
    char version[VX_VERSION_BYTES];
    vx_gpu_driver_version_text(gpu, version);
    vx_print("%s:%d  %s, %s, %d processors, %.1f GiB, %d KiB shared, %.0f MiB cache, "
             "%d MHz, driver %s\n",
             word, options->index, vx_gpu_name(gpu), vx_gpu_arch(gpu), caps->processors,
             (f64)caps->memory_bytes / (1 << 30), caps->shared_block >> 10,
             (f64)caps->cache_bytes / (1 << 20), caps->clock_mhz, version);
    vx_gpu_close(&gpu);
    return true;
}

int vx_tool_devices(int count, char **arguments)
{
    struct {
        const char *word, *library;
        enum vx_gpu_vendor vendor;
    } vendors[] = {{"cuda", NULL, VX_GPU_CUDA}, {"hip", NULL, VX_GPU_HIP}};
    const struct vx_flag flags[] = {{"--gpu-driver", &vendors[0].library},
                                    {"--hip-library", &vendors[1].library}};
    bool good = true;
    if (vx_tool_help(count, arguments, usage)) return 0;
    if (!vx_flags_parse(count, arguments, flags, VX_COUNT(flags))) return 2;
    for (size_t i = 0; i < VX_COUNT(vendors); i++) {
        struct vx_gpu_options options = {.vendor = vendors[i].vendor,
                                         .library = vendors[i].library};
        struct vx_why why = {""};
        i32 devices = vx_gpu_count(&options, &why);
        if (!devices) vx_print("%-6s none: %s\n", vendors[i].word, why.text);
        for (options.index = 0; options.index < devices; options.index++)
            good = print_device(&options, vendors[i].word) && good;
    }
    return good ? 0 : 1;
}
