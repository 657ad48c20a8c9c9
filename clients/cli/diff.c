/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/commands.h"

#include "clients/c/error.h"
#include "clients/c/memory.h"
#include "clients/cli/diff_picture.h"
#include "clients/cli/diff_source.h"
#include "clients/cli/diff_table.h"
#include "clients/cli/out.h"
#include "clients/cli/view.h"

#include <stdio.h>
#include <string.h>

struct diff_options {
    const char *sides[2]; /* A and B */
    const char *example, *layers, *picture, *draw, *voxeld, *cache;
    const char *device_bytes, *cache_bytes;
    double bound;
    int64_t sample; /* -1 = not set */
    struct view_options view;
    bool json, quiet;
    struct render_view render;
};

static const char about[] =
    "Compares two runs of a network, layer by layer, and names the first that differs.";

static const char examples[] =
    "A and B are recordings (.npz, see `voxeld record --help`), or model directories,\n"
    "which `voxeld record` runs now: DIR or DIR/VERSION, then @DEVICE, then ,PRECISION,\n"
    "as model@cuda:0,fp32; without @DEVICE it is the CPU.\n\n"
    "Rows are matched by their voxels. A layer is over the bound if its worst element\n"
    "differs by more than --bound times its largest element in A, if one run has voxels\n"
    "that the other has not, or if more than that share of its labels differ. An output\n"
    "that only one run has is over the bound; such a layer is listed and does not "
    "count.\n\n"
    "The picture: a voxel's colour is its worst error, from dark violet (a hundredth of\n"
    "the bound, or less) over teal (the bound) to pale yellow (a hundred times the\n"
    "bound, or a voxel of one run alone).\n\n"
    "examples:\n"
    "  voxel diff model@cpu model@cuda:0 --example scan.npz --bound 1e-2\n"
    "  voxel diff before.npz after.npz --render error.png\n"
    "  voxel diff model/example.npz model\n"
    "  voxel diff model@cuda:0,fp32 model@cuda:0,fp16 --layers stem,block1.conv\n\n"
    "exit code: 0 within the bound, 1 over it, 2 wrong options, or a run that cannot be\n"
    "read or recorded";

static int say(const char *text)
{
    fprintf(stderr, "voxel diff: %s\n", text);
    return CLI_USAGE;
}

/* --- the two sides --- */

/* The .npz with the request that models run. */
static int find_example(const struct diff_options *o, const struct diff_source *sides,
                        char found[PATH_MAX], const char **example)
{
    *example = o->example;
    for (int i = 0; i < 2 && !*example; i++)
        if (!sides[i].model) *example = sides[i].path;
    for (int i = 0; i < 2 && !*example; i++)
        if (diff_source_example(&sides[i], found)) *example = found;
    if (*example) return CLI_DONE;
    return say("expected --example FILE.npz, with coords and feats: there is no "
               "example.npz in a model's directory");
}

static int record_models(const struct diff_options *o, struct diff_source *sides)
{
    char found[PATH_MAX];
    struct voxel_error error;
    struct diff_wanted wanted = {.voxeld = o->voxeld,
                                 .layers = o->layers,
                                 .cache = o->cache,
                                 .device_bytes = o->device_bytes,
                                 .cache_bytes = o->cache_bytes};
    if (!sides[0].model && !sides[1].model) {
        if (!o->example) return CLI_DONE;
        return say("--example has no effect: both are recordings, which have their own");
    }
    int code = find_example(o, sides, found, &wanted.example);
    if (code) return code;
    if (o->picture && out_check_input(o->picture, wanted.example, &error))
        return cli_say_input("diff", &error);
    for (int i = 0; i < 2; i++)
        wanted.outputs_only |= !sides[i].model && !sides[i].recording.layers_count;
    for (int i = 0; i < 2; i++) {
        if (!sides[i].model) continue;
        cli_progress(i ? "recording B" : "recording A");
        if (diff_source_record(&sides[i], &wanted, &error))
            return cli_say_input("diff", &error);
        cli_progress(NULL);
    }
    return CLI_DONE;
}

/* --- comparing --- */

/* Where the worst element is, in voxels or in indices. */
static void set_place(const struct compare_tensor *tensor, struct diff_row *row)
{
    int64_t index = row->found.row;
    row->dense = tensor->coords == NULL;
    if (index < 0) return;
    for (int k = 0; k < 4 && tensor->coords; k++)
        row->place[k] = tensor->coords[4 * index + k];
    for (int32_t d = tensor->rank; d-- > 0 && row->dense; index /= tensor->shape[d])
        row->place[d] = index % tensor->shape[d];
}

static enum voxel_code compare_row(const struct diff_table *table, struct diff_row *row,
                                   struct voxel_error *error)
{
    struct recorded_tensor a;
    struct recorded_tensor b = {0};
    enum voxel_code code = recording_read(table->a, row->a, &a, error);
    if (!code) code = recording_read(table->b, row->b, &b, error);
    if (!code) code = compare_tensors(&a.tensor, &b.tensor, NULL, &row->found, error);
    if (!code) {
        row->rank = a.tensor.rank;
        row->other_rank = b.tensor.rank;
        memcpy(row->shape, a.tensor.shape, sizeof row->shape);
        memcpy(row->other_shape, b.tensor.shape, sizeof row->other_shape);
        row->within = compare_within(&row->found, table->bound);
        set_place(&a.tensor, row);
    }
    recording_give(&a);
    recording_give(&b);
    return code;
}

/* A name that no run has is a mistake; the rest would be compared without it. */
static int check_layers(const struct diff_table *table)
{
    char name[DIFF_NAME_BYTES];
    for (const char *at = table->layers ? table->layers : ""; *at;) {
        size_t own = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)own, at);
        if (!recording_find(table->a, RECORDED_LAYER, name) &&
            !recording_find(table->b, RECORDED_LAYER, name)) {
            fprintf(stderr, "voxel diff: --layers: neither run has a layer '%s'\n", name);
            return CLI_USAGE;
        }
        at += own + (at[own] == ',');
    }
    return CLI_DONE;
}

static int compare_all(struct diff_table *table)
{
    struct voxel_error error;
    table->rows = voxel_memory_take((size_t)table->a->count + 1, sizeof *table->rows);
    if (!table->rows) return say("no memory for a table");
    if (recording_same_request(table->a, table->b, &error))
        return cli_say_input("diff", &error);
    if (check_layers(table)) return CLI_USAGE;
    for (int32_t i = 0; i < table->a->count; i++) {
        const struct recorded *a = &table->a->list[i];
        const struct recorded *b = recording_find(table->b, a->kind, a->name);
        if (!b || !diff_table_takes(table, a)) continue;
        cli_progress(a->name);
        struct diff_row *row = &table->rows[table->count++];
        *row = (struct diff_row){.a = a, .b = b};
        if (compare_row(table, row, &error)) return cli_say_input("diff", &error);
    }
    cli_progress(NULL);
    if (!table->count)
        return say("there is nothing to compare: no layer and no output is in both runs");
    if (diff_table_is_empty(table))
        return say("there is nothing to compare: all layers and outputs have 0 rows in "
                   "both runs");
    return CLI_DONE;
}

/* --- what is made of it --- */

static const struct diff_row *find_row(const struct diff_table *table, const char *name)
{
    for (int32_t i = 0; i < table->count; i++)
        if (strcmp(table->rows[i].a->name, name) == 0) return &table->rows[i];
    return NULL;
}

static int draw(const struct diff_options *o, const struct diff_table *table)
{
    char name[DIFF_NAME_BYTES];
    struct voxel_error error;
    const struct diff_picture picture = {o->picture, o->render, o->sample};
    if (!o->picture) return CLI_DONE;
    const struct diff_row *row =
        o->draw ? find_row(table, o->draw) : diff_table_first(table, true);
    if (!row) return say("--draw: expected the name of a layer that was compared");
    cli_progress("drawing");
    if (diff_picture_draw(&picture, table, row, &error))
        return cli_say_input("diff", &error);
    cli_progress(NULL);
    if (!o->quiet && !o->json)
        printf("wrote %s: %s\n", o->picture, diff_row_name(row, name));
    return CLI_DONE;
}

static int run_diff(const struct diff_options *o, struct diff_source *sides)
{
    struct diff_table table = {.bound = o->bound,
                               .layers = o->layers,
                               .a = &sides[0].recording,
                               .b = &sides[1].recording};
    int code = record_models(o, sides);
    if (!code) code = compare_all(&table);
    if (!code && o->json)
        diff_table_print_json(&table);
    else if (!code && !o->quiet)
        diff_table_print(&table);
    if (!code) code = draw(o, &table);
    if (!code && !diff_table_within(&table)) code = CLI_REFUSED;
    voxel_memory_give(table.rows);
    return code;
}

static enum voxel_code check_picture(const struct diff_options *o,
                                     struct voxel_error *error)
{
    const char *const inputs[] = {o->sides[0], o->sides[1], o->example};
    enum voxel_code code = render_check_path(o->picture, error);
    for (int i = 0; i < 3 && !code; i++)
        if (inputs[i]) code = out_check_input(o->picture, inputs[i], error);
    return code ? code : out_check(o->picture, error);
}

static int check_options(const struct command *command, struct diff_options *o)
{
    static const char drawn[] = "it applies only to --render PNG";
    struct voxel_error error;
    const struct option_idle idle[] = {
        {"draw", !o->picture, drawn},
        {"sample", !o->picture, drawn},
        {"view", !o->picture, drawn},
        {"size", !o->picture, drawn},
        {"up", !o->picture, drawn},
        {"isometric", !o->picture, drawn},
        {"quiet", o->json, "--json prints what it is for"},
    };
    if (!o->sides[1]) return say("expected two runs, A and B (see voxel diff --help)");
    if (options_refuse_idle(command, idle, sizeof idle / sizeof *idle)) return CLI_USAGE;
    if (o->picture && check_picture(o, &error)) return cli_say_input("diff", &error);
    return view_read(command, &o->view, &o->render);
}

int command_diff(int argc, char **argv)
{
    struct diff_options o = {.bound = 1e-5, .sample = -1, .view = VIEW_OPTIONS};
    uint64_t given = 0;
    const struct option options[] = {
#define VX_OPTION(name_, letter_, value_, kind_, member_, low_, high_, help_)            \
    {name_, letter_, value_, OPTION_##kind_, &o.member_, {low_, high_}, help_},
#include "clients/cli/diff.def"
#undef VX_OPTION
    };
    const struct command command = {
        .name = "diff",
        .synopsis = "A B [--bound SHARE] [--example NPZ] [--render PNG]",
        .about = about,
        .after = examples,
        .options = options,
        .options_count = sizeof options / sizeof *options,
        .given = &given,
        .positional = o.sides,
        .positional_count = 2,
    };
    int code;
    if (!options_parse(&command, argc, argv, &code)) return code;
    code = check_options(&command, &o);
    if (code) return code;
    struct diff_source sides[2];
    struct voxel_error error;
    memset(sides, 0, sizeof sides);
    for (int i = 0; i < 2 && !code; i++)
        if (diff_source_parse(o.sides[i], &sides[i], &error))
            code = cli_say_input("diff", &error);
    if (!code) code = run_diff(&o, sides);
    for (int i = 0; i < 2; i++) diff_source_close(&sides[i]);
    return code;
}
