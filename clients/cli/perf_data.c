/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/commands.h"

#include "clients/c/error.h"
#include "clients/c/limits.h"
#include "clients/c/memory.h"
#include "clients/cli/axes.h"
#include "clients/cli/out.h"
#include "clients/cli/perf_write.h"
#include "clients/cli/token.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PERF_GRIDS_MAX 10000
#define PERF_LIST_MAX  64
/* How far a repeated grid is moved, at most, along each axis: far enough that two are
 * hardly ever the same, near enough that every server accepts it. */
#define PERF_MOVE 1024

struct perf_options {
    struct cli_tls tls;
    const char *server, *model, *voxels, *from, *coords_name, *feats_name, *dtype, *form,
        *out, *token_file;
    int64_t version, count, seed, channels;
    double voxel;
    bool one_sample;
};

/* The sizes or the files that the grids are made from, in turn. */
struct perf_list {
    int64_t voxels[PERF_LIST_MAX];
    const char *files[PERF_LIST_MAX];
    int32_t count;
    char *memory; /* `files` points into it */
};

struct perf_run {
    const struct perf_options *options;
    struct perf_list list;
    struct model_inputs inputs;
    struct voxel_model_limits limits; /* zeros without a server */
    FILE *to;                         /* NULL with --as files */
    enum perf_content content;
    uint64_t random;
    int64_t grids, voxels_least, voxels_most;
};

static const char examples[] =
    "A made-up grid is a hollow sphere, as in `voxel bench`, or several in the model's\n"
    "spatial_shape. Each repetition of a size is moved, so that it is another geometry.\n"
    "A grid that the model would not accept is an error. Without --count no size is "
    "repeated, and\n"
    "after the first pass the server knows every geometry. Feats are random in [-1, 1),\n"
    "in steps that 16-bit floats can hold; feats of a file are kept.\n\n"
    "examples:\n"
    "  voxel perf-data --model normals --voxels 848,8600,64160 --count 30 -o mixed.json\n"
    "  voxel perf-data --channels 4 --voxels 5000 --as numbers -o small.json\n"
    "  voxel perf-data --model normals --from room.ply,hall.npz --voxel 0.1 -o "
    "scans.json\n"
    "  perf_analyzer -m normals -i grpc -u 127.0.0.1:8001 --input-data mixed.json\n\n"
    "exit code: 0 done, 1 the server refused or is away, 2 wrong options or file";

static int say(const char *text)
{
    fprintf(stderr, "voxel perf-data: %s\n", text);
    return CLI_USAGE;
}

/* Uniform 64 bits (xorshift64*). */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1du;
}

static bool parse_size(const char *word, int64_t *size)
{
    char *end;
    errno = 0;
    long long number = strtoll(word, &end, 10);
    *size = number;
    return end != word && *end == '\0' && errno == 0 && number >= 1 &&
           number <= POINTS_MAX;
}

/* Splits "a,b,c" of --voxels or --from; the words lie in list->memory. */
static int read_list(const struct command *command, const struct perf_options *o,
                     struct perf_list *list)
{
    const char *text = o->from ? o->from : o->voxels;
    const char *name = o->from ? "from" : "voxels";
    size_t bytes = strlen(text) + 1;
    list->memory = voxel_memory_take(bytes, 1);
    if (!list->memory) return say("no memory for a list");
    memcpy(list->memory, text, bytes);
    for (char *word = list->memory; word;) {
        char *comma = strchr(word, ',');
        if (comma) *comma = '\0';
        if (list->count == PERF_LIST_MAX)
            return options_bad(command, name, "at most 64 of them", text);
        if (o->from && !*word)
            return options_bad(command, name, "files separated by commas", text);
        if (!o->from && !parse_size(word, &list->voxels[list->count]))
            return options_bad(command, name,
                               "numbers of voxels separated by commas, as 848,8600",
                               text);
        list->files[list->count++] = word;
        word = comma ? comma + 1 : NULL;
    }
    return CLI_DONE;
}

/* Gets the model's inputs from the server. */
static int ask_model(const struct perf_options *o, struct perf_run *run,
                     struct voxel_client *client, struct voxel_model_info **info)
{
    struct voxel_error error;
    const struct voxel_model_name name = {o->model, o->version};
    if (voxel_model_info_get(client, &name, info, &error) ||
        voxel_model_limits_get(client, &name, &run->limits, &error))
        return cli_say_error("perf-data", o->server, &error);
    if (model_inputs_find(*info, NULL, (int32_t)o->channels, &run->inputs, &error))
        return cli_say_input("perf-data", &error);
    struct model_inputs asked;
    if (model_inputs_find(*info, o->dtype, (int32_t)o->channels, &asked, &error))
        return cli_say_input("perf-data", &error);
    if (asked.type != run->inputs.type) {
        /* perf_analyzer labels the bytes with the metadata's type, whatever they are. */
        fprintf(stderr,
                "voxel perf-data: --dtype: model '%s' takes %s, and perf_analyzer always "
                "sends the model's type\n",
                o->model, voxel_type_name(run->inputs.type));
        return CLI_USAGE;
    }
    return CLI_DONE;
}

static enum voxel_code cloud_next(const struct perf_run *run, int64_t grid,
                                  struct cloud *cloud, struct voxel_error *error)
{
    int32_t which = (int32_t)(grid % run->list.count);
    if (!run->options->from)
        return cloud_make_shell(run->list.voxels[which], run->limits.spatial_shape, cloud,
                                error);
    struct points points;
    /* Nothing reads the answers, so the scale of feats does not matter. */
    const struct feats_asked asked = {.raw = true,
                                      .one_sample = run->options->one_sample};
    const char *file = run->list.files[which];
    enum voxel_code code = points_read_file(file, &asked, &points, error);
    if (code) return code;
    code = cloud_make(&points, run->options->voxel, cloud, error);
    if (!code && *run->limits.axes) cloud_place(cloud, run->limits.axes);
    if (!code && grid < run->list.count) cli_say_cloud("perf-data", file, cloud, false);
    points_fini(&points);
    return code;
}

/* How far the cloud may be moved along an axis: PERF_MOVE, or within the shape. */
static void find_room(const struct cloud *cloud, int axis, int32_t size, int32_t room[2])
{
    int32_t low = INT32_MAX, high = INT32_MIN;
    for (int64_t i = 0; i < cloud->count; i++) {
        const int32_t at = cloud->coords[4 * i + 1 + axis];
        if (at < low) low = at;
        if (at > high) high = at;
    }
    room[0] = -PERF_MOVE;
    room[1] = PERF_MOVE;
    if (size <= 0 || !cloud->count) return;
    if (-low > room[0]) room[0] = -low;
    if (size - 1 - high < room[1]) room[1] = size - 1 - high;
}

/* Moves the cloud at random, to where the model accepts it. */
static enum voxel_code move_cloud(struct perf_run *run, const char *name,
                                  struct cloud *cloud, struct voxel_error *error)
{
    const int32_t *shape = run->limits.spatial_shape;
    int32_t by[3], places = 1;
    for (int k = 0; k < 3; k++) {
        int32_t room[2];
        find_room(cloud, k, shape[0] ? shape[k] : 0, room);
        const uint32_t steps = (uint32_t)(room[1] - room[0]) + 1;
        by[k] = (int32_t)((next_random(&run->random) >> 32) % steps) + room[0];
        if (steps > 1) places = 2;
    }
    if (places == 1)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "a grid of %s fills the model's spatial_shape %dx%dx%d, "
                               "where it cannot be moved: repeated, it would be the same "
                               "geometry",
                               name, (int)shape[0], (int)shape[1], (int)shape[2]);
    for (int64_t i = 0; i < 3 * cloud->count; i++) {
        int32_t *at = &cloud->coords[4 * (i / 3) + 1 + i % 3];
        if (*at > INT32_MAX - PERF_MOVE || *at < INT32_MIN + PERF_MOVE)
            return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                                   "%s: its coordinates are too large to be moved", name);
        *at += by[i % 3];
    }
    return VOXEL_OK;
}

/* Whether the model accepts the cloud. */
static enum voxel_code check_cloud(const struct perf_run *run, const char *name,
                                   const struct cloud *cloud, struct voxel_error *error)
{
    const int64_t most = run->limits.voxels_max;
    if (cloud->channels && cloud->channels != run->inputs.channels)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "%s has feats of %d channels; the input takes %d", name,
                               (int)cloud->channels, (int)run->inputs.channels);
    if (most && cloud->count > most)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "%" PRId64 " voxels are more than the model's voxels_max, "
                               "%" PRId64,
                               cloud->count, most);
    struct voxel_error found;
    enum voxel_code code = cloud_check_shape(cloud, run->limits.spatial_shape, &found);
    return code ? voxel_error_set(error, code, "%s: %s", name, found.text) : code;
}

static bool fill_feats(struct cloud *cloud, int32_t channels, uint64_t *random)
{
    if (cloud->feats) return true;
    cloud->feats =
        voxel_memory_take((size_t)cloud->count, (size_t)channels * sizeof(float));
    if (!cloud->feats) return cloud->count == 0;
    for (int64_t i = 0; i < cloud->count * channels; i++)
        cloud->feats[i] = (float)((int32_t)(next_random(random) >> 56) - 128) / 128.0f;
    cloud->channels = channels;
    return true;
}

/* JSON has no infinity and no NaN. */
static bool can_be_said(const struct cloud *cloud)
{
    for (int64_t i = 0; i < cloud->count * cloud->channels; i++)
        if (!isfinite(cloud->feats[i])) return false;
    return true;
}

static bool is_raw(const struct perf_run *run)
{
    return strcmp(run->options->form, "files") == 0;
}

static enum voxel_code check_inputs(const struct perf_run *run, const char *path,
                                    struct voxel_error *error)
{
    enum voxel_code code = VOXEL_OK;
    for (int32_t i = 0; run->options->from && i < run->list.count && !code; i++)
        code = out_check_input(path, run->list.files[i], error);
    return code;
}

static enum voxel_code write_raw(const struct perf_run *run,
                                 const struct voxel_tensor *tensor,
                                 struct voxel_error *error)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", run->options->out, tensor->name);
    enum voxel_code code = check_inputs(run, path, error);
    return code ? code : perf_write_raw(run->options->out, tensor, error);
}

static enum voxel_code write_cloud(struct perf_run *run, const struct cloud *cloud,
                                   struct voxel_error *error)
{
    struct request_tensors tensors;
    enum voxel_code code = request_tensors_make(cloud, &run->inputs, &tensors, error);
    if (code) return code;
    if (run->to) {
        perf_write_grid(run->to, tensors.list, run->content, run->grids == 0);
    } else {
        for (int i = 0; i < 2 && !code; i++)
            code = write_raw(run, &tensors.list[i], error);
        if (!code)
            printf(
                "--shape %s:%" PRId64 ",%" PRId64 " --shape %s:%" PRId64 ",%" PRId64 "\n",
                tensors.list[0].name, tensors.list[0].shape[0], tensors.list[0].shape[1],
                tensors.list[1].name, tensors.list[1].shape[0], tensors.list[1].shape[1]);
    }
    request_tensors_fini(&tensors);
    if (run->grids == 0 || cloud->count < run->voxels_least)
        run->voxels_least = cloud->count;
    if (cloud->count > run->voxels_most) run->voxels_most = cloud->count;
    run->grids++;
    return code;
}

static int make_grids(struct perf_run *run, int64_t count)
{
    struct voxel_error error;
    for (int64_t grid = 0; grid < count; grid++) {
        struct cloud cloud;
        const char *name = run->list.files[grid % run->list.count];
        enum voxel_code code = cloud_next(run, grid, &cloud, &error);
        if (code) return cli_say_input("perf-data", &error);
        code = check_cloud(run, name, &cloud, &error);
        if (!code && grid >= run->list.count)
            code = move_cloud(run, name, &cloud, &error);
        if (!code && !fill_feats(&cloud, run->inputs.channels, &run->random))
            code = voxel_error_memory(&error, "feats", (size_t)cloud.count);
        if (!code && run->content == PERF_NUMBERS && !can_be_said(&cloud))
            code = voxel_error_set(&error, VOXEL_INVALID_ARGUMENT,
                                   "%s: --as numbers cannot write infinity or NaN", name);
        if (!code) code = write_cloud(run, &cloud, &error);
        cloud_fini(&cloud);
        if (code) return cli_say_input("perf-data", &error);
    }
    return CLI_DONE;
}

/* Refuses a path that is no .json, or one of the files that are read. */
static enum voxel_code check_out(const struct perf_run *run, struct voxel_error *error)
{
    const char *out = run->options->out;
    const char *ending = strrchr(out, '.');
    if (is_raw(run)) return VOXEL_OK; /* write_raw knows the paths */
    if (!ending || strcmp(ending, ".json") != 0)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "%s: expected an output that ends in .json", out);
    enum voxel_code code = check_inputs(run, out, error);
    return code ? code : out_check(out, error);
}

/* Writes the JSON file, whole or not at all; with --as files two files in a folder. */
static int write_out(struct perf_run *run)
{
    const struct perf_options *o = run->options;
    int64_t count = o->count ? o->count : run->list.count;
    if (is_raw(run)) {
        if (count > 1)
            return say("--as files holds one grid: give one of --voxels or --from");
        return make_grids(run, count);
    }
    struct out out;
    struct voxel_error error;
    if (out_open(&out, o->out, &error)) return cli_say_input("perf-data", &error);
    run->to = out.file;
    perf_write_begin(run->to);
    int code = make_grids(run, count);
    perf_write_end(run->to);
    if (code)
        out_drop(&out);
    else if (out_close(&out, &error))
        code = cli_say_input("perf-data", &error);
    if (!code)
        printf("%s: %" PRId64 " grids of %" PRId64 " to %" PRId64
               " voxels, %s %s and %s %s "
               "of %d channels\n",
               o->out, run->grids, run->voxels_least, run->voxels_most, "INT32",
               run->inputs.coords->name, voxel_type_name(run->inputs.type),
               run->inputs.feats->name, (int)run->inputs.channels);
    return code;
}

static int run_with_inputs(const struct command *command, struct perf_run *run)
{
    const struct perf_options *o = run->options;
    bool numbers = strcmp(o->form, "numbers") == 0;
    if (numbers && run->inputs.type != VOXEL_FP32)
        return options_bad(command, "as", "b64 or files for feats of 16 bits", o->form);
    run->content = numbers ? PERF_NUMBERS : PERF_BASE64;
    return write_out(run);
}

static int run_online(const struct command *command, struct perf_run *run)
{
    const struct perf_options *o = run->options;
    struct voxel_error error;
    struct voxel_client *client;
    struct voxel_model_info *info = NULL;
    struct voxel_options options = {.tls = cli_tls_of(&o->tls)};
    int bad = cli_token_get("perf-data", o->token_file, o->server, &options);
    if (bad) return bad;
    if (voxel_client_open(o->server, &options, &client, &error))
        return cli_say_input("perf-data", &error);
    int code = ask_model(o, run, client, &info);
    if (!code) code = run_with_inputs(command, run);
    voxel_info_free(info);
    voxel_client_close(client);
    return code;
}

/* Takes the inputs from the options, without a server. */
static int run_offline(const struct command *command, struct perf_run *run)
{
    const struct perf_options *o = run->options;
    struct voxel_error error;
    const struct voxel_tensor_info inputs[2] = {
        {.name = o->coords_name, .type = VOXEL_INT32, .rank = 2, .shape = {-1, 4}},
        {.name = o->feats_name,
         .type = VOXEL_FP32,
         .rank = 2,
         .shape = {-1, o->channels}}};
    const struct voxel_model_info info = {
        .name = "(none)", .inputs = inputs, .inputs_count = 2};
    if (model_inputs_find(&info, o->dtype, (int32_t)o->channels, &run->inputs, &error))
        return cli_say_input("perf-data", &error);
    return run_with_inputs(command, run);
}

static int check_idle(const struct command *command, const struct perf_options *o)
{
    static const char model[] = "the model's metadata has it";
    const struct option_idle idle[] = {
        {"voxel", !o->from, "it applies only to points of --from"},
        {"one-sample", !o->from, "it applies only to points of --from"},
        {"coords-name", o->model, model},
        {"feats-name", o->model, model},
        {"version", !o->model, "it applies only to --model"},
    };
    return options_refuse_idle(command, idle, sizeof idle / sizeof *idle);
}

static int check_options(const struct command *command, const struct perf_options *o)
{
    if (!o->voxels == !o->from)
        return say(o->from
                       ? "expected one of --voxels N,N,... and --from FILE,..., got both"
                       : "expected --voxels N,N,... or --from FILE,FILE,...");
    if (!o->out) return say("expected -o FILE (see voxel perf-data --help)");
    if (!o->model && !o->channels)
        return say("expected --model NAME, or --channels C to do without a server");
    if (strcmp(o->form, "b64") != 0 && strcmp(o->form, "numbers") != 0 &&
        strcmp(o->form, "files") != 0)
        return options_bad(command, "as", "b64, numbers or files", o->form);
    if (!o->model && strcmp(o->coords_name, o->feats_name) == 0)
        return options_bad(command, "feats-name", "another name than that of coords",
                           o->feats_name);
    return check_idle(command, o);
}

int command_perf_data(int argc, char **argv)
{
    struct perf_options o = {.server = CLI_SERVER,
                             .coords_name = "coords",
                             .feats_name = "feats",
                             .form = "b64",
                             .seed = 1};
    uint64_t given = 0;
    const struct option options[] = {
#define VX_OPTION(name_, letter_, value_, kind_, member_, low_, high_, help_)            \
    {name_, letter_, value_, OPTION_##kind_, &o.member_, {low_, high_}, help_},
#include "clients/cli/perf_data.def"
#undef VX_OPTION
    };
    const struct command command = {
        .name = "perf-data",
        .synopsis = "--model NAME --voxels N,N,... -o FILE",
        .about =
            "Writes the file of perf_analyzer's --input-data, with grids of mixed size.",
        .after = examples,
        .options = options,
        .options_count = sizeof options / sizeof *options,
        .given = &given,
    };
    int code;
    if (!options_parse(&command, argc, argv, &code)) return code;
    code = check_options(&command, &o);
    if (code) return code;
    struct perf_run run = {.options = &o,
                           .random = (uint64_t)o.seed * 0x9e3779b97f4a7c15u + 1};
    struct voxel_error error;
    code = read_list(&command, &o, &run.list);
    if (!code && check_out(&run, &error)) code = cli_say_input("perf-data", &error);
    if (!code) code = o.model ? run_online(&command, &run) : run_offline(&command, &run);
    voxel_memory_give(run.list.memory);
    return code;
}
