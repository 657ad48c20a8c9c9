/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/thread.h"
#include "engine/base/text/sentence.h"
#include "engine/engine.h"
#include "engine/model/model.h"
#include "engine/tools/example.h"
#include "engine/tools/fp8_error.h"

#include <stdio.h>

/* Of address space, and what geometries may take of it; pages are taken when they are
 * touched. */
#define DEVICE_BYTES ((size_t)16 << 30)
#define CACHE_BYTES  ((size_t)4 << 30)
#define PATH_BYTES   4096

enum { PLAIN, ROUNDED, RUNS };

/* A model beside itself: loaded twice, run on its data twice. */
struct pair {
    struct vx_model_source source;
    char label[VX_LABEL_BYTES]; /* of the data */
    struct vx_engine *engine;
    struct vx_model *models[RUNS];
    struct vx_example example;
    struct vx_answer answers[RUNS];
};

static const struct vx_network *network_of(const struct pair *pair)
{
    return pair->models[ROUNDED]->network;
}

static vx_status read_data(struct pair *pair, struct vx_why *why)
{
    const struct vx_network *network = network_of(pair);
    char path[PATH_BYTES];
    int length =
        snprintf(path, sizeof path, "%s/%s", pair->source.directory, network->fp8.data);
    VX_ENSURE(length > 0 && length < PATH_BYTES, INVALID_ARGUMENT,
              "the path of a model is too long");
    vx_label_of_path(path, 2, pair->label);
    const struct vx_example_file file = {path, pair->label, network->feats_channels};
    vx_status status = vx_example_read(&file, why, &pair->example);
    if (status.fault) {
        vx_why_prefix(why, "\"fp8\": \"data\": ");
        return status;
    }
    VX_ENSURE_WHY(pair->example.coords.shape[0] > 0, why, INVALID_ARGUMENT,
                  "the data for FP8 has no voxels",
                  "\"fp8\": \"data\": %s: expected at least 1 voxel, got 0", pair->label);
    return VX_OK;
}

static vx_status run_one(struct pair *pair, int run, struct vx_why *why)
{
    struct vx_answer *answer = &pair->answers[run];
    vx_status status =
        vx_example_run(pair->engine, pair->models[run], &pair->example, answer);
    for (i32 o = 0; o < network_of(pair)->outputs_count && !status.fault; o++)
        status = vx_answer_widen(&vx_model_signature(pair->models[run])->outputs[o], o,
                                 answer);
    if (status.fault && why) {
        *why = answer->item.why;
        vx_why_prefix(why, "%s: ", pair->label);
    }
    return status;
}

static vx_status run_both(struct pair *pair, struct vx_why *why)
{
    const struct vx_engine_options options = {
        .kind = VX_DEVICE_CPU, .device_bytes = DEVICE_BYTES, .cache_bytes = CACHE_BYTES};
    VX_TRY(vx_engine_open(&options, why, &pair->engine));
    for (int run = RUNS - 1; run >= 0; run--) {
        struct vx_model_source source = pair->source;
        source.leave_fp8 = run == PLAIN;
        VX_TRY(vx_engine_load(pair->engine, &source, NULL, why, &pair->models[run]));
    }
    VX_TRY(read_data(pair, why));
    for (int run = 0; run < RUNS; run++) VX_TRY(run_one(pair, run, why));
    return VX_OK;
}

static struct vx_fp8_rows rows_of(const struct pair *pair, int run, i32 o)
{
    const struct vx_answer *answer = &pair->answers[run];
    const struct vx_output *output = &vx_model_signature(pair->models[run])->outputs[o];
    return (struct vx_fp8_rows){
        .count = answer->rows[o],
        .values = answer->outputs[o],
        .coords = output->coords < 0 ? NULL : answer->outputs[output->coords]};
}

/* "-1.26 became -1.23, row 12, channel 3"; what has no numbers says how many rows. */
static void page_worst(struct vx_page *page, const struct vx_output *output,
                       const struct vx_fp8_error *error)
{
    if (output->dtype == VX_DTYPE_I32)
        vx_page_add(page, "%lld of %lld rows choose another channel",
                    (long long)error->changed, (long long)error->rows);
    else if (error->channel < 0)
        vx_page_add(page, "none differs");
    else
        vx_page_add(page, "%g became %g, row %lld, %s %d", error->plain, error->rounded,
                    (long long)error->row, output->dims_count ? "element" : "channel",
                    error->channel);
    if (error->lost + error->gained)
        vx_page_add(page, "; %lld rows are lost, %lld are new", (long long)error->lost,
                    (long long)error->gained);
    vx_page_add(page, "\n");
}

/* Writes a line for each output, also behind one that exceeds the bound. */
static vx_status compare(const struct pair *pair, struct vx_why *why,
                         struct vx_page *page)
{
    const struct vx_network *network = network_of(pair);
    const f64 most = network->fp8.nmse_max;
    const char *name = NULL;
    f64 found = 0;
    vx_page_add(page,
                "FP8: %d of %d layers multiply e4m3; outputs on %s (%lld voxels), in f32 "
                "with and without\n  %-24s %-12s %-12s %s\n",
                network->fp8.layers_count, network->layers_count, network->fp8.data,
                (long long)pair->example.coords.shape[0], "output", "NMSE", "at most",
                "worst element");
    for (i32 o = 0; o < network->outputs_count; o++) {
        const struct vx_output *output =
            &vx_model_signature(pair->models[ROUNDED])->outputs[o];
        const struct vx_fp8_rows plain = rows_of(pair, PLAIN, o),
                                 rounded = rows_of(pair, ROUNDED, o);
        const struct vx_fp8_error error = vx_fp8_error_of(output, &plain, &rounded);
        const f64 nmse = vx_fp8_nmse(&error);
        vx_page_add(page, "  %-24s %-12.3g %-12g ", output->name, nmse, most);
        page_worst(page, output, &error);
        if (name || nmse <= most) continue; /* false for NaN */
        name = output->name;
        found = nmse;
    }
    VX_ENSURE_WHY(!name, why, INVALID_ARGUMENT, "a model in FP8 exceeds its own bound",
                  "%s: output \"%s\" in FP8: expected an NMSE of at most %g (\"fp8\": "
                  "\"nmse_max\") on %s, got %.3g",
                  network->label, name, most, network->fp8.data, found);
    return VX_OK;
}

vx_status vx_engine_check_fp8(const struct vx_model_source *source, struct vx_why *why,
                              char *text, size_t text_bytes)
{
    struct vx_page page = {text, text_bytes, 0};
    struct pair *pair = vx_alloc_zero(sizeof *pair);
    if (text_bytes) text[0] = '\0';
    VX_ENSURE(pair, RESOURCE_EXHAUSTED, "no memory to run a model");
    vx_thread_enter(VX_ROLE_DEVICE);
    pair->source = *source;
    vx_status status = run_both(pair, why);
    if (!status.fault) status = compare(pair, why, &page);
    for (int run = 0; run < RUNS; run++) {
        vx_answer_close(&pair->answers[run]);
        if (pair->engine) vx_engine_unload(pair->engine, &pair->models[run]);
    }
    vx_example_close(&pair->example);
    vx_engine_close(&pair->engine);
    vx_free(pair);
    return status;
}
