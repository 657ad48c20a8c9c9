/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/print.h"
#include "engine/gpu/model/model_narrow.h"
#include "engine/model/model.h"
#include "engine/tools/bench_cloud.h"
#include "engine/tools/tools.h"
#include "engine/tools/workbench.h"
#include "engine/tune/measure.h"
#include "engine/tune/shapes.h"

#include <stdio.h>
#include <string.h>

#define PROBLEMS_MAX  4096 /* distinct layers of the largest model, times sizes */
#define SIZES_MAX     64
#define TYPES_MAX     5
#define DENSITIES_MAX VX_DENSITIES_COUNT

static const char usage[] =
    "tune [--device cuda:0|hip:0|fake] [--model DIR [--version N] | --shapes LIST]\n"
    "     [--sizes N,N...] [--types fp16,...] [--density surface,sparse]\n"
    "     [--cloud NAME|FILE.npy[:SIZE][,...]]\n"
    "     [--mode auto|all] [--algorithm NAME] [--table FILE] [--cache DIR]\n"
    "     [--driver LIB] [--compiler LIB] [--texts DIR]\n"
    "\n"
    "  --model     the convolutions of this model, each with its warm-up sizes\n"
    "  --shapes    RES:C,RES:C... on shells of spheres; without --model and --shapes,\n"
    "              those of bench\n"
    "  --sizes     numbers of voxels, instead of the model's warm-up sizes or the\n"
    "              shells' sizes\n"
    "  --types     fp16, bf16, tf32, fp32, fp8; default: the model's, or fp16\n"
    "  --density   surface measures on shells (default); sparse on noise of as many\n"
    "              voxels, of which nearly all have no neighbour; layers of one\n"
    "              offset have no density\n"
    "  --cloud     of surfaces also these clouds, as bench takes them, the first rows "
    "of\n"
    "              each that has as many; the fastest has the least geometric mean\n"
    "  --mode      auto measures the few candidates that the cost model ranks first;\n"
    "              all measures every candidate\n"
    "  --algorithm measures only this one, even if it does not have the layer's order\n"
    "              of sums\n"
    "  --table     the file to write the results to; without it they are only printed\n";

struct tune {
    const char *model, *shapes, *table, *cloud;
    i64 version;
    i64 sizes[SIZES_MAX];
    i32 sizes_count;
    enum vx_number types[TYPES_MAX];
    i32 types_count;
    enum vx_density densities[DENSITIES_MAX];
    i32 densities_count;
    struct vx_workbench_wanted device;
    struct vx_measure_want want;
    struct vx_bench_clouds clouds; /* beside shells */
    struct vx_workbench bench;
    struct vx_conv_problem *problems; /* PROBLEMS_MAX */
    i32 count;
};

/* --- flags --- */

static bool parse_sizes(struct tune *tune, const char *list)
{
    char word[64];
    while ((list = vx_flag_word(list, word))) {
        if (tune->sizes_count == SIZES_MAX) {
            vx_print_error("expected at most %d sizes\n", SIZES_MAX);
            return false;
        }
        if (!vx_flag_number("--sizes", word, 1, VX_VOXELS_MAX,
                            &tune->sizes[tune->sizes_count++]))
            return false;
    }
    return true;
}

static bool parse_types(struct tune *tune, const char *list)
{
    char word[64];
    while ((list = vx_flag_word(list, word))) {
        enum vx_number type = vx_tune_type_of_name(word);
        if (!type || tune->types_count == TYPES_MAX) {
            vx_print_error(
                "expected up to %d of fp16, bf16, tf32, fp32, fp8 as --types, got "
                "\"%s\"\n",
                TYPES_MAX, word);
            return false;
        }
        tune->types[tune->types_count++] = type;
    }
    return true;
}

static bool parse_densities(struct tune *tune, const char *list)
{
    char word[64];
    while ((list = vx_flag_word(list, word))) {
        enum vx_density density = vx_density_of_name(word);
        if (density == VX_DENSITIES_COUNT || tune->densities_count == DENSITIES_MAX) {
            vx_print_error("expected surface, sparse or both as --density, got \"%s\"\n",
                           word);
            return false;
        }
        tune->densities[tune->densities_count++] = density;
    }
    if (!tune->densities_count)
        tune->densities[tune->densities_count++] = VX_DENSITY_SURFACE;
    return true;
}

static bool parse_mode(struct tune *tune, const char *mode, const char *algorithm)
{
    bool all = !strcmp(mode, "all");
    tune->want.mode = all ? VX_TUNE_ALL : VX_TUNE_AUTO;
    tune->want.algorithm = vx_conv_of_name(algorithm);
    if (!all && strcmp(mode, "auto") != 0) {
        vx_print_error("expected auto or all as --mode, got \"%s\"\n", mode);
        return false;
    }
    if (tune->want.algorithm == VX_CONV_ALGORITHMS_COUNT) {
        vx_print_error("expected the name of an algorithm such as masked, got \"%s\"\n",
                       algorithm);
        return false;
    }
    return true;
}

static bool parse(int count, char **arguments, struct tune *tune)
{
    const char *version = "1", *sizes = NULL, *types = NULL, *mode = "auto";
    const char *densities = NULL;
    const char *algorithm = vx_conv_name(VX_CONV_AUTO);
    const struct vx_flag flags[] = {
        {"--device", &tune->device.device},
        {"--driver", &tune->device.driver},
        {"--compiler", &tune->device.compiler},
        {"--texts", &tune->device.texts},
        {"--cache", &tune->device.cache},
        {"--model", &tune->model},
        {"--version", &version},
        {"--shapes", &tune->shapes},
        {"--sizes", &sizes},
        {"--types", &types},
        {"--density", &densities},
        {"--cloud", &tune->cloud},
        {"--mode", &mode},
        {"--algorithm", &algorithm},
        {"--table", &tune->table},
    };
    if (!vx_flags_parse(count, arguments, flags, VX_COUNT(flags)) ||
        !vx_flag_number("--version", version, 1, INT32_MAX, &tune->version) ||
        !parse_sizes(tune, sizes) || !parse_types(tune, types) ||
        !parse_densities(tune, densities) || !parse_mode(tune, mode, algorithm))
        return false;
    if (!tune->model || !tune->shapes) return true;
    vx_print_error("expected --model or --shapes, not both\n");
    return false;
}

/* --- what to measure --- */

static bool problem_same(const struct vx_conv_problem *a, const struct vx_conv_problem *b)
{
    return a->n == b->n && a->ci == b->ci && a->co == b->co && a->type == b->type &&
           vx_density_of(a->fill) == vx_density_of(b->fill) &&
           !memcmp(a->kernel, b->kernel, sizeof a->kernel);
}

static vx_status add_one(struct tune *tune, const struct vx_conv_problem *problem)
{
    for (i32 i = 0; i < tune->count; i++)
        if (problem_same(&tune->problems[i], problem)) return VX_OK;
    VX_ENSURE(tune->count < PROBLEMS_MAX, RESOURCE_EXHAUSTED,
              "too many different convolutions to tune at once");
    tune->problems[tune->count++] = *problem;
    return VX_OK;
}

/* Adds the problem with every density that it can have. */
static vx_status add_densities(struct tune *tune, const struct vx_conv_problem *problem)
{
    for (i32 i = 0; i < tune->densities_count; i++) {
        struct vx_conv_problem one = *problem;
        const enum vx_density density = tune->densities[i];
        if (density != VX_DENSITY_SURFACE) one.fill = vx_density_fill(density);
        if (density == VX_DENSITY_SURFACE || one.v > 1) VX_TRY(add_one(tune, &one));
    }
    return VX_OK;
}

/* Adds the problem with every type and size of the flags, or else with its own ones. */
static vx_status add(struct tune *tune, const struct vx_conv_problem *problem)
{
    const i32 sizes = tune->sizes_count ? tune->sizes_count : 1;
    const i32 types = tune->types_count ? tune->types_count : 1;
    for (i32 size = 0; size < sizes; size++)
        for (i32 type = 0; type < types; type++) {
            struct vx_conv_problem one = *problem;
            if (tune->sizes_count) one.n = tune->sizes[size];
            if (tune->types_count) one.type = tune->types[type];
            VX_TRY(add_densities(tune, &one));
        }
    return VX_OK;
}

static vx_status add_shape(struct tune *tune, const struct vx_shape *shape)
{
    const i32 channels = vx_channels_padded(shape->channels);
    const struct vx_conv_problem problem = {.n = vx_shape_shell_count(shape->res),
                                            .kernel = {3, 3, 3},
                                            .v = 27,
                                            .ci = channels,
                                            .co = channels,
                                            .type = VX_NUMBER_F16};
    return add(tune, &problem);
}

static vx_status add_shapes(struct tune *tune, struct vx_why *why)
{
    const char *list = tune->shapes;
    char word[64];
    struct vx_shape shape;
    for (i32 i = 0; !list && i < vx_shapes_shells_count; i++)
        VX_TRY(add_shape(tune, &vx_shapes_shells[i]));
    while ((list = vx_flag_word(list, word))) {
        VX_ENSURE_WHY(vx_shape_parse(word, &shape), why, INVALID_ARGUMENT, "not a shape",
                      "--shapes: expected shapes such as 256:256, got \"%s\"", word);
        VX_TRY(add_shape(tune, &shape));
    }
    return VX_OK;
}

static vx_status add_launches(struct tune *tune, const struct vx_model *model)
{
    const struct vx_network *network = model->network;
    for (i32 i = 0; i < model->plan->launches_count; i++) {
        const struct vx_launch *launch = &model->plan->launches[i];
        const struct vx_layer *layer = launch->node->layer;
        const bool map = launch->map >= 0;
        if (!vx_launch_is_product(launch) ||
            vx_gpu_narrow_tile(launch, model->number, vx_gpu_caps(tune->bench.gpu)))
            continue;
        /* Only maps of one set are measured. */
        if (map && model->plan->maps[launch->map].kind != VX_MAP_SUBM) continue;
        struct vx_conv_problem problem = {.kernel = {1, 1, 1},
                                          .v = 1,
                                          .ci = vx_channels_padded(layer->channels_in),
                                          .co = vx_channels_padded(layer->channels),
                                          .type = model->number,
                                          .in_scale = layer->fp8_scale};
        if (map) {
            memcpy(problem.kernel, layer->kernel, sizeof problem.kernel);
            problem.v = layer->v;
        }
        for (i32 size = 0; size < network->warmup_count; size++) {
            problem.n = network->warmup[size];
            VX_TRY(add(tune, &problem));
        }
    }
    return VX_OK;
}

static vx_status add_model(struct tune *tune, struct vx_why *why)
{
    const struct vx_model_source source = {.directory = tune->model,
                                           .version = (i32)tune->version};
    struct vx_model *model;
    VX_TRY(vx_model_begin(&source, true, why, &model));
    vx_status status = add_launches(tune, model);
    vx_model_close(&model);
    return status;
}

/* --- measuring --- */

static void on_progress(void *context, i64 done, i64 total)
{
    (void)context;
    vx_tool_progress("compiling", done, total);
}

static void print_tile(const struct vx_conv_choice *choice)
{
    const struct vx_kernel_spec *spec = vx_conv_spec(choice->algorithm);
    vx_print("%s[", vx_conv_name(choice->algorithm));
    for (i32 i = 0; spec->tiles && i < spec->macros_count; i++)
        vx_print("%s%d", i ? "," : "", spec->tiles[choice->tile].values[i]);
    vx_print("]");
}

static void print_report(const struct vx_measure_report *report)
{
    const struct vx_conv_problem *problem = &report->problem;
    char shape[32];
    snprintf(shape, sizeof shape, "%dx%dx%d", problem->kernel[0], problem->kernel[1],
             problem->kernel[2]);
    vx_print("%9lld %5d %5d %-8s %-4s %-7s %5.3f %4d ", (long long)problem->n,
             problem->ci, problem->co, shape, vx_tune_type_name(problem->type),
             vx_density_name(vx_density_of(problem->fill)), report->fill, report->count);
    if (report->best < 0) {
        vx_print("%12s %8s  no candidate is correct\n", "-", "-");
    } else {
        const struct vx_measure_result *best = &report->results[report->best];
        f64 flops = 2.0 * problem->ci * problem->co * (f64)report->pairs;
        vx_print("%12.1f %8.1f  ", best->ns / 1e3, flops / best->ns / 1e3);
        print_tile(&best->choice);
        vx_print("\n");
    }
    for (i32 i = 0; i < report->count; i++) {
        const struct vx_measure_result *result = &report->results[i];
        if (result->right) continue;
        vx_print("          rejected: ");
        print_tile(&result->choice);
        vx_print(" NMSE %.3g, worst element %.3g of its bound%s\n", result->nmse,
                 result->worst, result->worst <= 1 ? ", bits differ" : "");
    }
}

static vx_status measure_on(struct tune *tune, const i32 *coords,
                            const struct vx_conv_problem *problem, struct vx_why *why,
                            struct vx_measure_report *report)
{
    const struct vx_measure_device device = {tune->bench.set, tune->bench.jit,
                                             tune->bench.stream};
    const struct vx_progress progress = {on_progress, NULL};
    struct vx_measure_want want = tune->want;
    struct vx_measure *measure;
    want.coords = coords;
    VX_TRY(vx_measure_open(&device, &want, why, &measure));
    vx_status status = vx_measure_ready(measure, problem, &progress, why);
    if (!status.fault) status = vx_measure_conv(measure, problem, why, report);
    vx_measure_close(&measure);
    return status;
}

/* Of a surface on shells, then on each cloud that has as many rows. */
static vx_status measure_all(struct tune *tune, const struct vx_conv_problem *problem,
                             struct vx_why *why, struct vx_measure_report *report)
{
    static struct vx_measure_report one; /* large */
    const bool surface = vx_density_of(problem->fill) == VX_DENSITY_SURFACE;
    i32 before = 1;
    VX_TRY(measure_on(tune, NULL, problem, why, report));
    for (i32 i = 0; surface && problem->v > 1 && i < tune->clouds.count; i++) {
        const struct vx_cloud *cloud = &tune->clouds.list[i];
        if (cloud->n < problem->n) continue;
        VX_TRY(measure_on(tune, cloud->coords, problem, why, &one));
        vx_measure_join(&one, before++, report);
    }
    return VX_OK;
}

/* Writes the table after each problem, so that a later failure loses no results. */
static vx_status measure_problem(struct tune *tune, struct vx_conv_problem *problem,
                                 struct vx_tune_table *table, struct vx_why *why)
{
    /* A layer in FP8, where the device multiplies such numbers. */
    if (problem->in_scale > 0 &&
        vx_conv_multiplies_e4m3(problem, vx_gpu_caps(tune->bench.gpu)))
        problem->type = VX_NUMBER_E4M3;
    static struct vx_measure_report report; /* large */
    VX_TRY(measure_all(tune, problem, why, &report));
    print_report(&report);
    VX_TRY(vx_measure_keep(tune->bench.jit, &report, table, why));
    return tune->table ? vx_tune_table_write(table, tune->table, why) : VX_OK;
}

static vx_status measure_problems(struct tune *tune, struct vx_tune_table *table,
                                  struct vx_why *why)
{
    vx_status status = VX_OK;
    vx_print("%s, seed %llu\n", vx_gpu_name(tune->bench.gpu),
             (unsigned long long)VX_MEASURE_SEED);
    vx_print("%9s %5s %5s %-8s %-4s %-7s %5s %4s %12s %8s  %s\n", "N", "Ci", "Co",
             "kernel", "type", "density", "fill", "of", "us", "TFLOP/s", "fastest");
    for (i32 i = 0; i < tune->count && !status.fault; i++) {
        vx_tool_progress("tuning", i, tune->count);
        status = measure_problem(tune, &tune->problems[i], table, why);
    }
    vx_tool_progress("tuning", 1, 1);
    return status;
}

static vx_status run(struct tune *tune, struct vx_why *why)
{
    struct vx_tune_table *table;
    tune->problems = vx_alloc(PROBLEMS_MAX * sizeof *tune->problems);
    VX_ENSURE(tune->problems, RESOURCE_EXHAUSTED, "no memory for the list of problems");
    VX_TRY(vx_workbench_open(&tune->device, why, &tune->bench));
    VX_TRY(tune->model ? add_model(tune, why) : add_shapes(tune, why));
    VX_ENSURE(tune->count, INVALID_ARGUMENT,
              "nothing to measure: no convolution of that density, or no size");
    if (tune->cloud)
        VX_TRY(vx_bench_clouds_open(
            &(struct vx_bench_clouds_wanted){.list = tune->cloud, .levels = 1}, why,
            &tune->clouds));
    VX_TRY(vx_tune_table_open(vx_gpu_name(tune->bench.gpu), why, &table));
    vx_status status = tune->table ? vx_tune_table_read(table, tune->table, why) : VX_OK;
    if (!status.fault) status = measure_problems(tune, table, why);
    if (!status.fault && tune->table)
        vx_print("%d rows in %s\n", vx_tune_table_count(table), tune->table);
    vx_tune_table_close(&table);
    return status;
}

int vx_tool_tune(int count, char **arguments)
{
    struct tune tune = {.count = 0};
    struct vx_why why = {""};
    if (vx_tool_help(count, arguments, usage)) return 0;
    if (!parse(count, arguments, &tune)) return 2;
    vx_status status = run(&tune, &why);
    vx_workbench_close(&tune.bench);
    vx_bench_clouds_close(&tune.clouds);
    vx_free(tune.problems);
    if (!status.fault) return 0;
    vx_print_error("%s tune: %s\n", vx_tool_program(), vx_status_text(status, &why));
    return 1;
}
