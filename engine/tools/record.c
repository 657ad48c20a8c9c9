/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/tools/record.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/log.h"
#include "engine/base/process/print.h"
#include "engine/base/process/thread.h"
#include "engine/model/model.h"
#include "engine/tools/tools.h"
#include "engine/tools/workbench.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The CPU reserves address space alone, the fake device takes it. */
#define DEVICE_BYTES_CPU  "16G"
#define DEVICE_BYTES_GPU  "4G"
#define DEVICE_BYTES_FAKE "256M"
#define CACHE_BYTES       "1G"
#define BYTES_LEAST       (1 << 20)
#define BYTES_MOST        (INT64_C(1) << 40)
#define PAGE_BYTES        (2 * VX_NETWORK_BYTES_MAX) /* a text that is too long is seen */

static const char usage[] =
    "record MODEL_DIRECTORY[/VERSION] --example FILE.npz -o FILE.npz\n"
    "       [--device cpu|cuda:0|hip:0|fake] [--layers NAME,NAME...] [--outputs-only]\n"
    "       [--precision auto|fp16|bf16|tf32|fp32] [--threads N]\n"
    "       [--device-bytes N] [--cache-bytes N] [--cache DIR] [--table FILE]\n"
    "       [--driver LIB] [--compiler LIB] [--texts DIR]\n"
    "\n"
    "Runs a network on one example and writes the result of each layer: a recording,\n"
    "which `voxel diff` compares with another. Without VERSION it runs the highest.\n"
    "\n"
    "  --example       coords int32 [N, 4] and feats float32 [N, C], as np.savez writes\n"
    "                  them, or of 64 bits; a recording is an example\n"
    "  -o              the recording, a .npz: coords, feats, layer.NAME in the order of\n"
    "                  network.json, out.NAME; at.NAME has the voxels of rows that are\n"
    "                  not the request's\n"
    "  --layers        these layers alone; --outputs-only records none\n"
    "  --precision     in place of network.json's; GPUs only\n"
    "  --device-bytes  memory for the results of layers; default: " DEVICE_BYTES_CPU
    ", which a CPU\n"
    "                  only reserves, and " DEVICE_BYTES_GPU " on a GPU\n"
    "  --cache-bytes   memory for neighbour maps; default: " CACHE_BYTES "\n"
    "  --cache, --table   kernels and tuning results, as in voxeld bench\n"
    "\n"
    "Exit code: 0 recorded, 1 the network cannot be run, 2 wrong usage.\n";

struct flags {
    const char *model, *example, *out, *device, *layers, *precision, *threads;
    const char *device_bytes, *cache_bytes, *cache, *table, *driver, *compiler, *texts;
    bool outputs_only;
};

struct tool {
    struct flags flags;
    struct vx_gpu_settings gpu;
    struct vx_engine_options options;
    enum vx_precision precision; /* AUTO = the network's own */
    char directory[VX_RECORD_PATH_BYTES];
    char version_path[PATH_MAX]; /* absolute */
    i32 version;
    struct vx_model *model; /* the whole network, checked */
    u8 *block;              /* its JSON's */
    struct vx_record record;
};

/* --- flags --- */

static bool parse_device(struct tool *tool)
{
    const char *device = tool->flags.device;
    enum vx_gpu_vendor vendor;
    tool->options.gpu = &tool->gpu;
    if (!strcmp(device, "cpu")) {
        tool->options.kind = VX_DEVICE_CPU;
        return true;
    }
    if (!vx_workbench_device(device, &vendor, &tool->gpu.index)) {
        vx_print_error("%s record: --device: expected cpu, cuda:0, hip:0 or fake, got "
                       "\"%s\"\n",
                       vx_tool_program(), device);
        return false;
    }
    tool->options.kind = vendor == VX_GPU_FAKE  ? VX_DEVICE_FAKE
                         : vendor == VX_GPU_HIP ? VX_DEVICE_HIP
                                                : VX_DEVICE_CUDA;
    return true;
}

static bool parse_precision(struct tool *tool)
{
    const char *word = tool->flags.precision;
    const bool cpu = tool->options.kind == VX_DEVICE_CPU;
    enum vx_precision p = VX_PRECISION_AUTO;
    if (!word) return true;
    while (p <= VX_PRECISION_FP32 && strcmp(word, vx_precision_name(p)) != 0) p++;
    if (p > VX_PRECISION_FP32)
        vx_print_error(
            "%s record: --precision: expected auto, fp16, bf16, tf32 or fp32, got "
            "\"%s\"\n",
            vx_tool_program(), word);
    else if (cpu && p != VX_PRECISION_AUTO)
        vx_print_error(
            "%s record: --precision has no effect on the CPU, which computes in "
            "fp32\n",
            vx_tool_program());
    tool->precision = p;
    return p <= VX_PRECISION_FP32 && (!cpu || p == VX_PRECISION_AUTO);
}

static bool parse_numbers(struct tool *tool)
{
    struct flags *flags = &tool->flags;
    i64 threads, device_bytes, cache_bytes;
    if (!flags->device_bytes)
        flags->device_bytes = tool->options.kind == VX_DEVICE_CPU    ? DEVICE_BYTES_CPU
                              : tool->options.kind == VX_DEVICE_FAKE ? DEVICE_BYTES_FAKE
                                                                     : DEVICE_BYTES_GPU;
    if (!vx_flag_number("--threads", flags->threads, 0, VX_CPU_THREADS_MAX, &threads) ||
        !vx_flag_bytes("--device-bytes", flags->device_bytes, BYTES_LEAST, BYTES_MOST,
                       &device_bytes) ||
        !vx_flag_bytes("--cache-bytes", flags->cache_bytes, BYTES_LEAST, BYTES_MOST,
                       &cache_bytes))
        return false;
    tool->options.threads = (i32)threads;
    tool->options.device_bytes = (size_t)device_bytes;
    tool->options.cache_bytes = (size_t)cache_bytes;
    tool->gpu.driver = flags->driver;
    tool->gpu.compiler = flags->compiler;
    tool->gpu.kernel_cache = flags->cache;
    tool->gpu.kernel_texts = flags->texts;
    tool->gpu.tune_table = flags->table;
    return true;
}

/* Takes the model and the one flag without a value out of the arguments. */
static int take_words(int count, char **arguments, struct flags *flags)
{
    int kept = 0;
    for (int i = 0; i < count; i++) {
        bool value = kept % 2 == 1;
        if (!value && !strcmp(arguments[i], "--outputs-only"))
            flags->outputs_only = true;
        else if (!value && arguments[i][0] != '-' && !flags->model)
            flags->model = arguments[i];
        else
            arguments[kept++] = arguments[i];
    }
    return kept;
}

static bool parse(int count, char **arguments, struct tool *tool)
{
    struct flags *flags = &tool->flags;
    const struct vx_flag list[] = {
        {"--example", &flags->example},
        {"-o", &flags->out},
        {"--out", &flags->out},
        {"--device", &flags->device},
        {"--layers", &flags->layers},
        {"--precision", &flags->precision},
        {"--threads", &flags->threads},
        {"--device-bytes", &flags->device_bytes},
        {"--cache-bytes", &flags->cache_bytes},
        {"--cache", &flags->cache},
        {"--table", &flags->table},
        {"--driver", &flags->driver},
        {"--compiler", &flags->compiler},
        {"--texts", &flags->texts},
    };
    *flags = (struct flags){.device = "cpu", .threads = "0", .cache_bytes = CACHE_BYTES};
    count = take_words(count, arguments, flags);
    if (!vx_flags_parse(count, arguments, list, VX_COUNT(list))) return false;
    const char *missing = !flags->model     ? "MODEL_DIRECTORY"
                          : !flags->example ? "--example FILE.npz"
                          : !flags->out     ? "-o FILE.npz"
                                            : NULL;
    if (missing || (flags->outputs_only && flags->layers)) {
        vx_print_error("%s record: expected %s\n\n", vx_tool_program(),
                       missing ? missing : "--layers or --outputs-only, not both");
        vx_tool_print_usage(usage);
        return false;
    }
    /* Else a slip of the hand puts a recording in another file's place. */
    const char *ending = strrchr(flags->out, '.');
    if (!ending || strcmp(ending, ".npz") != 0) {
        vx_print_error("%s record: -o: expected a file that ends in .npz, got \"%s\"\n",
                       vx_tool_program(), flags->out);
        return false;
    }
    return parse_device(tool) && parse_precision(tool) && parse_numbers(tool);
}

/* --- the model directory --- */

/* A version's directory is a number above 0 without zeros in front; else 0. */
static i32 version_of(const char *name)
{
    char *end;
    if (*name < '1' || *name > '9') return 0;
    errno = 0;
    long number = strtol(name, &end, 10);
    return errno || *end || number > INT32_MAX ? 0 : (i32)number;
}

static i32 version_highest(const char *path)
{
    i32 highest = 0;
    DIR *directory = opendir(path);
    if (!directory) return 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        i32 version = version_of(entry->d_name);
        struct stat file; /* a file of that name is none */
        bool none =
            !fstatat(dirfd(directory), entry->d_name, &file, 0) && !S_ISDIR(file.st_mode);
        if (version > highest && !none) highest = version;
    }
    closedir(directory);
    return highest;
}

/* Splits MODEL_DIRECTORY/VERSION; without VERSION it is the highest, or 1 if there is
 * none, so that loading says what is there instead. */
static vx_status find_version(struct tool *tool, struct vx_why *why)
{
    char path[VX_RECORD_PATH_BYTES + 32];
    size_t length = strlen(tool->flags.model);
    VX_ENSURE(length > 0 && length < sizeof tool->directory, INVALID_ARGUMENT,
              "the path of a model is empty or too long");
    memcpy(tool->directory, tool->flags.model, length + 1);
    while (length > 1 && tool->directory[length - 1] == '/')
        tool->directory[--length] = 0;
    char *slash = strrchr(tool->directory, '/');
    snprintf(path, sizeof path, "%s/network.json", tool->directory);
    if (slash > tool->directory && version_of(slash + 1) && access(path, F_OK)) {
        tool->version = version_of(slash + 1);
        *slash = 0;
    } else {
        tool->version = version_highest(tool->directory);
        if (!tool->version) tool->version = 1;
    }
    const struct vx_model_source source = {.directory = tool->directory,
                                           .version = tool->version};
    VX_TRY(
        vx_model_begin(&source, tool->options.kind != VX_DEVICE_CPU, why, &tool->model));
    snprintf(path, sizeof path, "%s/%d", tool->directory, tool->version);
    VX_ENSURE_WHY(realpath(path, tool->version_path), why, NOT_FOUND,
                  "a version cannot be found", "%.200s: %s", path, strerror(errno));
    return VX_OK;
}

/* The type in which the whole network is multiplied: a part of it might be another's. */
static enum vx_precision precision_of(const struct tool *tool)
{
    if (tool->options.kind == VX_DEVICE_CPU) return tool->model->network->precision;
    if (tool->precision != VX_PRECISION_AUTO) return tool->precision;
    switch (tool->model->number) {
    case VX_NUMBER_F16: return VX_PRECISION_FP16;
    case VX_NUMBER_BF16: return VX_PRECISION_BF16;
    case VX_NUMBER_TF32: return VX_PRECISION_TF32;
    default: return VX_PRECISION_FP32;
    }
}

/* network.json once more, as a tree: of a run it is copied in parts. */
static vx_status read_tree(struct tool *tool, struct vx_why *why)
{
    char path[VX_RECORD_PATH_BYTES + 32];
    struct vx_arena arena;
    size_t bytes = 0;
    const size_t room = VX_NETWORK_ARENA_BYTES + VX_NETWORK_BYTES_MAX;
    tool->block = vx_alloc(room);
    VX_ENSURE(tool->block, RESOURCE_EXHAUSTED, "no memory to read network.json");
    snprintf(path, sizeof path, "%s/network.json", tool->directory);
    FILE *file = fopen(path, "rbe");
    if (file) {
        bytes = fread(tool->block, 1, VX_NETWORK_BYTES_MAX, file);
        fclose(file);
    }
    vx_arena_init(&arena, tool->block + VX_NETWORK_BYTES_MAX, VX_NETWORK_ARENA_BYTES);
    return vx_json_parse((const char *)tool->block, bytes, &arena, why,
                         &tool->record.source.root);
}

static vx_status open_model(struct tool *tool, struct vx_why *why)
{
    struct vx_record *record = &tool->record;
    VX_TRY(find_version(tool, why));
    VX_TRY(read_tree(tool, why));
    record->source.network = tool->model->network;
    record->source.precision = precision_of(tool);
    const char *names = tool->flags.outputs_only ? "" : tool->flags.layers;
    vx_status status =
        vx_record_plan_make(record->source.network, names, why, &record->plan);
    if (status.fault) vx_why_prefix(why, "--layers: ");
    return status;
}

/* --- the example --- */

static vx_status read_example(struct tool *tool, struct vx_why *why)
{
    struct vx_record *record = &tool->record;
    const struct vx_example_file file = {tool->flags.example, "--example",
                                         tool->model->network->feats_channels};
    VX_TRY(vx_example_read(&file, why, &record->example));
    record->source.voxels = record->example.coords.shape[0];
    return VX_OK;
}

/* --- the tool --- */

static vx_status record_all(struct tool *tool, struct vx_why *why)
{
    struct vx_record *record = &tool->record;
    const i32 runs = record->plan.runs_count;
    record->example.coords.place = 0;
    record->example.feats.place = 1;
    VX_TRY(vx_npz_add(record->npz, &record->example.coords, why));
    VX_TRY(vx_npz_add(record->npz, &record->example.feats, why));
    for (i32 run = 0; run < runs; run++) {
        VX_TRY(vx_record_run(record, run, why));
        vx_tool_progress("recording", run + 1, runs + 1);
    }
    VX_TRY(vx_record_run(record, VX_RECORD_OUTPUTS, why));
    vx_tool_progress("recording", runs + 1, runs + 1);
    return VX_OK;
}

/* What is read must not be written over: the model's files and the example. */
static vx_status check_out(const struct tool *tool, struct vx_why *why)
{
    char network[VX_RECORD_PATH_BYTES + 32], weights[PATH_MAX + 32],
        data[VX_RECORD_PATH_BYTES + VX_NAME_BYTES];
    const char *const read[] = {network, weights, data, tool->flags.example};
    struct stat out, other;
    snprintf(network, sizeof network, "%s/network.json", tool->directory);
    snprintf(weights, sizeof weights, "%s/weights.safetensors", tool->version_path);
    snprintf(data, sizeof data, "%s/%s", tool->directory, tool->model->network->fp8.data);
    if (stat(tool->flags.out, &out) || !S_ISREG(out.st_mode)) return VX_OK;
    for (size_t i = 0; i < VX_COUNT(read); i++)
        VX_ENSURE_WHY(stat(read[i], &other) || out.st_dev != other.st_dev ||
                          out.st_ino != other.st_ino,
                      why, INVALID_ARGUMENT, "a recording would overwrite what it reads",
                      "-o %.150s is read here and would be overwritten", tool->flags.out);
    return VX_OK;
}

static vx_status run(struct tool *tool, struct vx_why *why)
{
    struct vx_record *record = &tool->record;
    vx_thread_enter(VX_ROLE_DEVICE);
    VX_TRY(open_model(tool, why));
    VX_TRY(read_example(tool, why));
    record->page = (struct vx_page){vx_alloc(PAGE_BYTES), PAGE_BYTES, 0};
    VX_ENSURE(record->page.text, RESOURCE_EXHAUSTED, "no memory for a network.json");
    VX_TRY(check_out(tool, why));
    VX_TRY(vx_npz_create(tool->flags.out, why, &record->npz));
    VX_TRY(vx_record_work_make(record, tool->version_path, why));
    VX_TRY(vx_engine_open(&tool->options, why, &record->engine));
    VX_TRY(record_all(tool, why));
    VX_TRY(vx_npz_close(&record->npz, why));
    vx_print("%s: version %d on %s, voxels: %lld, layers: %d, outputs: %d\n",
             tool->flags.out, tool->version, tool->flags.device,
             (long long)record->source.voxels, record->plan.layers_count,
             record->source.network->outputs_count);
    return VX_OK;
}

static void close_all(struct tool *tool)
{
    struct vx_record *record = &tool->record;
    vx_engine_close(&record->engine);
    vx_record_work_remove(record);
    vx_npz_drop(&record->npz);
    vx_free(record->page.text);
    vx_example_close(&record->example);
    vx_free(tool->block);
    vx_model_close(&tool->model);
}

int vx_tool_record(int count, char **arguments)
{
    struct vx_why why = {""};
    if (vx_tool_help(count, arguments, usage)) return 0;
    struct tool *tool = vx_alloc_zero(sizeof *tool);
    if (!tool) return 1;
    vx_log_init(&(struct vx_log_options){.level = VX_LOG_WARN, .fd = STDERR_FILENO},
                "record");
    bool parsed = parse(count, arguments, tool);
    vx_status status = parsed ? run(tool, &why) : VX_OK;
    if (status.fault)
        vx_print_error("%s record: %s: %s\n", vx_tool_program(), tool->flags.model,
                       vx_status_text(status, &why));
    close_all(tool);
    vx_free(tool);
    return !parsed ? 2 : status.fault ? 1 : 0;
}
