/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/tools/bench.h"

#include "engine/base/process/print.h"
#include "engine/tools/tools.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define SHAPES_MAX 64
#define RUNS       "50"
/* A minute: beyond some seconds clocks and power change no more. */
#define WARM_MS_MAX 60000
/* The free memory divided by this is for the engine that runs a network. */
#define ENGINE_SHARE      2
#define ENGINE_BYTES_FAKE ((size_t)256 << 20)

static const char usage[] =
    "bench [--device cuda:0|hip:0|fake]\n"
    "      [--list shells|clouds|map|pointwise|network|all]\n"
    "      [--shape RES:C[:L][,...]] [--algorithm NAME|auto] [--tile I|all]\n"
    "      [--cloud NAME|FILE.npy[:SIZE]|clouds[,...]] [--levels 1]\n"
    "      [--rows given|sorted|shuffled] [--channels 64[,...]] [--layers 8]\n"
    "      [--save DIR] [--type fp16|bf16|tf32|fp32|fp8] [--kernel 3] [--runs 50]\n"
    "      [--warm-ms 10] [--json FILE]\n"
    "      [--network demo|c64x16 | --model DIR [--version N]] [--sizes N,N...]\n"
    "      [--order gray|number] [--table FILE] [--cache DIR]\n"
    "      [--driver LIB] [--compiler LIB] [--texts DIR]\n"
    "\n"
    "  --list      shells: one convolution on each shell; clouds: of each cloud the\n"
    "              map, and for each number of channels a convolution, and the map\n"
    "              and L of them; map: building the neighbour map of each shell from\n"
    "              coordinates; pointwise: the kernels between convolutions; network:\n"
    "              whole requests\n"
    "  --shape     shells of these resolutions and channels, instead of the default\n"
    "              ones; with L, also the map and L convolutions in one timing\n"
    "  --cloud     torus, cube, plane, tree, room, noise5, noise1, noise01; clouds =\n"
    "              all of them; a .npy of voxels (axes, or sample and axes), or of\n"
    "              points with the edge of a voxel: scan.npy:0.1.  A network runs on\n"
    "              them instead of on shells\n"
    "  --levels    of each cloud also the sets of voxels 2, 4, ... times as large\n"
    "  --rows      the order of the rows: as made or in the file, sorted, at random\n"
    "  --save      write each cloud to DIR/NAME.npy, int32 rows sample x y z\n"
    "  --tile      index of the algorithm's tile, or all: each one after the other;\n"
    "              default: from the table, else from the cost model\n"
    "  --warm-ms   how long a device is kept busy before each timing: 10 lets the\n"
    "              clocks rise, 2000 measures at the limit of its power\n"
    "  --network   demo from the root of the tree, or cCxL: L convolutions of C\n"
    "              channels\n"
    "  --order     how the device sorts rows: by the Gray rank of the mask, or by it\n"
    "              as a number\n"
    "\n"
    "useful and exec are TFLOP/s of the existing pairs and of all that the tiles\n"
    "compute.  %mma is exec as a share of the vendor's product (cuBLAS) of as many\n"
    "channels, the row \"vendor\" above it; without the vendor's library, of our own\n"
    "kernel on a dense product of 8192^3.  %mem is a share of one pass over memory.\n"
    "warm: the cache as the previous run left it; cold: overwritten before each run;\n"
    "graph: recorded and replayed; eager: launched; kept: requests whose geometry is\n"
    "in the cache.\n"
    "MHz is the clock of the multiprocessors, the median over the second half of the\n"
    "timing with its warm-up; W is the mean power of all of it, which takes a timing of\n"
    "0.4 s or more: --warm-ms 800 is always enough.  - is unknown: too short, another\n"
    "vendor's device, or no NVML.\n";

/* The values of the flags, as text. */
struct flags {
    const char *list, *shape, *algorithm, *tile, *type, *kernel, *runs, *json;
    const char *network, *model, *version, *sizes, *order, *table;
    const char *cloud, *levels, *rows, *channels, *layers, *save, *warm;
    struct vx_workbench_wanted device;
};
struct tool {
    struct flags flags;
    struct vx_shape shapes[SHAPES_MAX];
    i32 shapes_count;
    struct vx_bench_clouds clouds;
    struct vx_bench_clouds_wanted wanted;
    i32 channels[SHAPES_MAX]; /* of the list "clouds" */
    i32 channels_count, layers;
    struct vx_bench_network network;
    struct vx_tune_table *table;
    struct vx_bench bench;
};

/* --- flags --- */

static bool parse_flags(int count, char **arguments, struct flags *flags)
{
    const struct vx_flag list[] = {
        {"--device", &flags->device.device},
        {"--driver", &flags->device.driver},
        {"--compiler", &flags->device.compiler},
        {"--texts", &flags->device.texts},
        {"--cache", &flags->device.cache},
        {"--list", &flags->list},
        {"--shape", &flags->shape},
        {"--algorithm", &flags->algorithm},
        {"--tile", &flags->tile},
        {"--type", &flags->type},
        {"--kernel", &flags->kernel},
        {"--runs", &flags->runs},
        {"--json", &flags->json},
        {"--network", &flags->network},
        {"--model", &flags->model},
        {"--version", &flags->version},
        {"--sizes", &flags->sizes},
        {"--cloud", &flags->cloud},
        {"--levels", &flags->levels},
        {"--rows", &flags->rows},
        {"--channels", &flags->channels},
        {"--layers", &flags->layers},
        {"--save", &flags->save},
        {"--warm-ms", &flags->warm},
        {"--order", &flags->order},
        {"--table", &flags->table},
    };
    return vx_flags_parse(count, arguments, list, VX_COUNT(list));
}

static bool parse_word(const char *flag, const char *word, const char *const *words,
                       size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(word, words[i])) return true;
    vx_print_error("%s: expected", flag);
    for (size_t i = 0; i < count; i++) vx_print_error("%s %s", i ? "," : "", words[i]);
    vx_print_error(", got \"%s\"\n", word);
    return false;
}

static bool parse_words(struct tool *tool)
{
    static const char *const lists[] = {"shells",    "clouds",  "map",
                                        "pointwise", "network", "all"};
    static const char *const rows[] = {"given", "sorted", "shuffled"};
    static const char *const orders[] = {"gray", "number"};
    const struct flags *flags = &tool->flags;
    if (!parse_word("--list", flags->list, lists, VX_COUNT(lists)) ||
        !parse_word("--order", flags->order, orders, VX_COUNT(orders)) ||
        !parse_word("--rows", flags->rows, rows, VX_COUNT(rows)))
        return false;
    for (int i = 0; i < (int)VX_COUNT(rows); i++)
        if (!strcmp(flags->rows, rows[i])) tool->wanted.order = (enum vx_cloud_order)i;
    tool->bench.type = vx_tune_type_of_name(flags->type);
    tool->bench.pick.algorithm = vx_conv_of_name(flags->algorithm);
    if (!tool->bench.type)
        vx_print_error("--type: expected fp16, bf16, tf32, fp32 or fp8, got \"%s\"\n",
                       flags->type);
    if (tool->bench.pick.algorithm == VX_CONV_ALGORITHMS_COUNT)
        vx_print_error("--algorithm: expected auto or the name of one such as masked, "
                       "got \"%s\"\n",
                       flags->algorithm);
    return tool->bench.type && tool->bench.pick.algorithm != VX_CONV_ALGORITHMS_COUNT;
}

static bool parse_numbers(struct tool *tool)
{
    const struct flags *flags = &tool->flags;
    struct vx_bench_network *network = &tool->network;
    const char *list = flags->sizes;
    char word[64];
    i64 tile, runs, kernel, version, warm, levels, layers;
    const bool every = !strcmp(flags->tile, "all");
    if (!vx_flag_number("--tile", every ? "0" : flags->tile, -1, INT32_MAX, &tile) ||
        !vx_flag_number("--runs", flags->runs, 1, VX_HARNESS_RUNS_MAX, &runs) ||
        !vx_flag_number("--kernel", flags->kernel, 1, 7, &kernel) ||
        !vx_flag_number("--version", flags->version, 1, INT32_MAX, &version) ||
        !vx_flag_number("--warm-ms", flags->warm, 0, WARM_MS_MAX, &warm) ||
        !vx_flag_number("--levels", flags->levels, 1, VX_BENCH_LEVELS_MAX, &levels) ||
        !vx_flag_number("--layers", flags->layers, 1, VX_LAYERS_MAX, &layers))
        return false;
    tool->bench.warm_ns = warm * 1000000;
    tool->wanted.levels = (i32)levels;
    tool->layers = (i32)layers;
    tool->bench.tile = every ? VX_BENCH_TILE_ALL : (i32)tile;
    tool->bench.runs = (i32)runs;
    tool->bench.kernel = (i32)kernel;
    network->version = (i32)version;
    if (kernel % 2 == 0) {
        vx_print_error("--kernel: expected an odd number, got %lld\n", (long long)kernel);
        return false;
    }
    while ((list = vx_flag_word(list, word))) {
        if (network->sizes_count == VX_BENCH_SIZES_MAX) {
            vx_print_error("--sizes: expected at most %d\n", VX_BENCH_SIZES_MAX);
            return false;
        }
        if (!vx_flag_number("--sizes", word, 1, VX_VOXELS_MAX,
                            &network->sizes[network->sizes_count++]))
            return false;
    }
    return true;
}

static bool parse_shapes(struct tool *tool)
{
    const char *list = tool->flags.shape;
    char word[64];
    for (i32 i = 0; !list && i < vx_shapes_shells_count; i++)
        tool->shapes[tool->shapes_count++] = vx_shapes_shells[i];
    while ((list = vx_flag_word(list, word))) {
        if (tool->shapes_count == SHAPES_MAX ||
            !vx_shape_parse(word, &tool->shapes[tool->shapes_count])) {
            vx_print_error("--shape: expected at most %d such as 256:256, got \"%s\"\n",
                           SHAPES_MAX, word);
            return false;
        }
        tool->shapes_count++;
    }
    return true;
}

static bool parse_channels(struct tool *tool)
{
    const char *list = tool->flags.channels;
    char word[64];
    while ((list = vx_flag_word(list, word))) {
        i64 channels;
        if (tool->channels_count == SHAPES_MAX) {
            vx_print_error("--channels: expected at most %d\n", SHAPES_MAX);
            return false;
        }
        if (!vx_flag_number("--channels", word, 1, VX_CHANNELS_MAX, &channels))
            return false;
        tool->channels[tool->channels_count++] = (i32)channels;
    }
    return true;
}

static bool parse(int count, char **arguments, struct tool *tool)
{
    struct flags *flags = &tool->flags;
    *flags = (struct flags){.algorithm = vx_conv_name(VX_CONV_AUTO),
                            .tile = "-1",
                            .type = "fp16",
                            .kernel = "3",
                            .runs = RUNS,
                            .version = "1",
                            .sizes = "10000,100000,1000000",
                            .levels = "1",
                            .rows = "given",
                            .channels = "64",
                            .layers = "8",
                            .warm = "10",
                            .order = "gray"};
    if (!parse_flags(count, arguments, flags)) return false;
    if (!flags->list)
        flags->list = flags->network || flags->model ? "network"
                      : flags->cloud                 ? "clouds"
                                                     : "shells";
    if (!flags->cloud && !strcmp(flags->list, "clouds")) flags->cloud = "clouds";
    if (flags->network && flags->model) {
        vx_print_error("expected --network or --model, not both\n");
        return false;
    }
    tool->network.model = flags->model;
    tool->network.clouds = &tool->clouds;
    tool->wanted.list = flags->cloud;
    tool->wanted.save = flags->save;
    tool->network.name = flags->network || flags->model ? flags->network : "c64x16";
    return parse_words(tool) && parse_numbers(tool) && parse_shapes(tool) &&
           parse_channels(tool);
}

/* --- running --- */

static bool tool_wants(const struct tool *tool, const char *list)
{
    return !strcmp(tool->flags.list, list) || !strcmp(tool->flags.list, "all");
}

/* The map is that of the first number of channels: wider layers may want another order. */
static vx_status tool_cloud(struct tool *tool, const struct vx_cloud *cloud,
                            struct vx_why *why)
{
    struct vx_bench_set set = {
        .n = cloud->n, .coords = cloud->coords, .layers = tool->layers};
    memcpy(set.name, cloud->name, sizeof set.name);
    for (i32 i = 0; i < tool->channels_count; i++) {
        set.channels = tool->channels[i];
        if (!i) VX_TRY(vx_bench_map(&tool->bench, &set, why));
        VX_TRY(vx_bench_conv(&tool->bench, &set, why));
    }
    return VX_OK;
}

static vx_status tool_kernels(struct tool *tool, struct vx_why *why)
{
    struct vx_bench *bench = &tool->bench;
    VX_TRY(vx_harness_open(bench->bench.set, bench->bench.stream, why, &bench->harness));
    /* Without it the ceiling is our own kernel's, as the help says. */
    vx_status vendor = vx_blas_gpu_open(bench->bench.gpu, NULL, NULL, &bench->blas);
    (void)vendor;
    bench->harness->plain = !strcmp(tool->flags.order, "number");
    VX_TRY(vx_bench_ceilings(bench, why));
    for (i32 i = 0; i < tool->shapes_count; i++) {
        const struct vx_bench_set set = vx_bench_set_of_shape(&tool->shapes[i]);
        if (tool_wants(tool, "shells")) VX_TRY(vx_bench_conv(bench, &set, why));
        if (tool_wants(tool, "map")) VX_TRY(vx_bench_map(bench, &set, why));
        if (tool_wants(tool, "pointwise")) VX_TRY(vx_bench_pointwise(bench, &set, why));
    }
    for (i32 i = 0; tool_wants(tool, "clouds") && i < tool->clouds.count; i++)
        VX_TRY(tool_cloud(tool, &tool->clouds.list[i], why));
    return VX_OK;
}

/* The engine opens the device itself: this only computes how much memory it may use. */
static vx_status tool_network_settings(struct tool *tool, struct vx_why *why)
{
    struct vx_bench_network *network = &tool->network;
    const struct vx_workbench *bench = &tool->bench.bench;
    const char *device = tool->flags.device.device;
    enum vx_gpu_vendor vendor = VX_GPU_CUDA;
    size_t free_bytes, total_bytes;
    if (device) (void)vx_workbench_device(device, &vendor, &network->gpu.index);
    network->kind = vendor == VX_GPU_FAKE  ? VX_DEVICE_FAKE
                    : vendor == VX_GPU_HIP ? VX_DEVICE_HIP
                                           : VX_DEVICE_CUDA;
    network->gpu.driver = tool->flags.device.driver;
    network->gpu.compiler = tool->flags.device.compiler;
    network->gpu.kernel_cache = tool->flags.device.cache;
    network->gpu.kernel_texts = tool->flags.device.texts;
    network->gpu.tune_table = tool->flags.table;
    network->gpu.algorithm = tool->bench.pick.algorithm;
    VX_TRY(vx_gpu_memory_info(bench->gpu, why, &free_bytes, &total_bytes));
    network->device_bytes = bench->fake ? ENGINE_BYTES_FAKE : free_bytes / ENGINE_SHARE;
    return VX_OK;
}

static vx_status tool_open(struct tool *tool, struct vx_why *why)
{
    struct vx_bench *bench = &tool->bench;
    const enum vx_conv_algorithm algorithm = bench->pick.algorithm;
    VX_TRY(vx_workbench_open(&tool->flags.device, why, &bench->bench));
    const char *name = vx_gpu_name(bench->bench.gpu);
    vx_pick_init(&bench->pick, bench->bench.jit, vx_gpu_caps(bench->bench.gpu), name);
    bench->pick.algorithm = algorithm;
    VX_TRY(vx_bench_power_open(bench->bench.gpu, NULL, why, &bench->power));
    if (tool->flags.json) {
        bench->json =
            open(tool->flags.json, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        VX_ENSURE_WHY(bench->json >= 0, why, UNAVAILABLE, "--json cannot be written",
                      "--json %s: expected a file that can be written: %s",
                      tool->flags.json, strerror(errno));
    }
    if (!tool->flags.table) return VX_OK;
    VX_TRY(vx_tune_table_open(name, why, &tool->table));
    VX_TRY(vx_tune_table_read(tool->table, tool->flags.table, why));
    bench->pick.table = tool->table;
    return VX_OK;
}

static void tool_close_device(struct vx_bench *bench)
{
    vx_blas_gpu_close(&bench->blas);
    vx_harness_close(&bench->harness);
    vx_workbench_close(&bench->bench);
}

static vx_status tool_run(struct tool *tool, struct vx_why *why)
{
    struct vx_bench *bench = &tool->bench;
    VX_TRY(tool_open(tool, why));
    VX_TRY(tool_network_settings(tool, why));
    VX_TRY(vx_bench_clouds_open(&tool->wanted, why, &tool->clouds));
    vx_bench_title(bench);
    if (strcmp(tool->flags.list, "network") != 0) VX_TRY(tool_kernels(tool, why));
    tool_close_device(bench);
    if (tool_wants(tool, "network")) VX_TRY(vx_bench_network(bench, &tool->network, why));
    return VX_OK;
}

int vx_tool_bench(int count, char **arguments)
{
    static struct tool tool; /* too large for the stack: the time of every run */
    struct vx_why why = {""};
    tool = (struct tool){.bench = {.json = -1}};
    if (vx_tool_help(count, arguments, usage)) return 0;
    if (!parse(count, arguments, &tool)) return 2;
    vx_status status = tool_run(&tool, &why);
    tool_close_device(&tool.bench);
    vx_bench_power_close(&tool.bench.power);
    vx_bench_clouds_close(&tool.clouds);
    vx_tune_table_close(&tool.table);
    if (tool.bench.json >= 0) close(tool.bench.json);
    if (!status.fault) return 0;
    vx_print_error("%s bench: %s\n", vx_tool_program(), vx_status_text(status, &why));
    return 1;
}
