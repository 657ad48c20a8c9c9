/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/tools/record.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- the folder --- */

static const char *work_path(const struct vx_record *record, const char *name,
                             char path[128])
{
    snprintf(path, 128, "%s/%s", record->work, name);
    return path;
}

vx_status vx_record_work_make(struct vx_record *record, const char *version,
                              struct vx_why *why)
{
    char path[128];
    snprintf(record->work, sizeof record->work, "%s/voxeld-record-XXXXXX", P_tmpdir);
    if (!mkdtemp(record->work)) {
        vx_why_set(why, "%s: cannot be made: %s", record->work, strerror(errno));
        record->work[0] = 0;
        VX_FAIL(UNAVAILABLE, "a folder cannot be made");
    }
    VX_ENSURE_WHY(!symlink(version, work_path(record, "1", path)), why, UNAVAILABLE,
                  "a link cannot be made", "%s: cannot be made: %s", path,
                  strerror(errno));
    return VX_OK;
}

void vx_record_work_remove(struct vx_record *record)
{
    char path[128];
    if (!record->work[0]) return;
    (void)unlink(work_path(record, "network.json", path));
    (void)unlink(work_path(record, "1", path));
    (void)rmdir(record->work);
    record->work[0] = 0;
}

static vx_status network_write(struct vx_record *record, i32 run, struct vx_why *why)
{
    char path[128];
    record->page.used = 0;
    VX_TRY(vx_record_text(&record->source, &record->plan, run, why, &record->page));
    FILE *file = fopen(work_path(record, "network.json", path), "wbe");
    bool good = file && fwrite(record->page.text, 1, record->page.used, file) ==
                            record->page.used;
    if (file) good = !fclose(file) && good;
    VX_ENSURE_WHY(good, why, UNAVAILABLE, "a file cannot be written",
                  "%s: cannot be written: %s", path, strerror(errno));
    return VX_OK;
}

/* --- the arrays --- */

/* Writes output `o` of the run as PREFIX + NAME. */
struct placed {
    const char *prefix, *name;
    i32 place;
};
static vx_status output_write(struct vx_record *record,
                              const struct vx_signature *signature, i32 o,
                              const struct placed *as, struct vx_answer *answer)
{
    const struct vx_output *output = &signature->outputs[o];
    struct vx_npz_array array = {
        .size = 4, .kind = output->dtype == VX_DTYPE_I32 ? 'i' : 'f', .place = as->place};
    VX_TRY(vx_answer_widen(output, o, answer));
    snprintf(array.name, sizeof array.name, "%s%s", as->prefix, as->name);
    array.rank = vx_output_shape(output, answer->rows[o], array.shape);
    array.data = answer->outputs[o];
    return vx_npz_add(record->npz, &array, &answer->item.why);
}

static vx_status layers_write(struct vx_record *record, i32 run,
                              const struct vx_signature *signature,
                              struct vx_answer *answer)
{
    const struct vx_network *network = record->source.network;
    for (i32 i = 0; i < network->layers_count; i++) {
        const char *name = network->layers[i].name;
        const i32 o = record->plan.output[i];
        if (record->plan.run[i] != run) continue;
        const i32 coords = signature->outputs[o].coords;
        VX_TRY(output_write(record, signature, o,
                            &(struct placed){"layer.", name, 2 + 2 * i}, answer));
        if (coords >= 0)
            VX_TRY(output_write(record, signature, coords,
                                &(struct placed){"at.", name, 3 + 2 * i}, answer));
    }
    return VX_OK;
}

/* The recorded layer of that name; NONE = there is no such one. */
static i32 layer_named(const struct vx_record *record, const char *name)
{
    const struct vx_network *network = record->source.network;
    for (i32 i = 0; i < network->layers_count; i++)
        if (record->plan.run[i] >= 0 && !strcmp(network->layers[i].name, name)) return i;
    return VX_LAYER_NONE;
}

/* An output may have the name of a layer on other voxels, whose at.NAME is not its own:
 * then at.out.NAME says where its rows are. */
static vx_status coords_write(struct vx_record *record,
                              const struct vx_signature *signature, i32 o,
                              struct vx_answer *answer)
{
    const struct vx_network *network = record->source.network;
    const struct vx_output *output = &signature->outputs[o];
    const i32 place = 3 + 2 * (network->layers_count + o);
    const i32 named = layer_named(record, output->name);
    const struct vx_layer *layer = named >= 0 ? &network->layers[named] : NULL;
    const bool alone = !layer || layer->op == VX_OP_TO_DENSE;
    if (output->set == VX_OUTPUT_DENSE) return VX_OK;
    if (!alone && layer->set == network->layers[network->outputs[o].layer].set)
        return VX_OK; /* the layer's at.NAME, or none */
    const struct placed as = {alone ? "at." : "at.out.", output->name, place};
    if (output->set) return output_write(record, signature, output->coords, &as, answer);
    if (alone) return VX_OK;
    struct vx_npz_array array = record->example.coords;
    array.place = place;
    snprintf(array.name, sizeof array.name, "%s%s", as.prefix, as.name);
    return vx_npz_add(record->npz, &array, &answer->item.why);
}

static vx_status outputs_write(struct vx_record *record,
                               const struct vx_signature *signature,
                               struct vx_answer *answer)
{
    const struct vx_network *network = record->source.network;
    for (i32 o = 0; o < network->outputs_count; o++) {
        const struct placed as = {"out.", signature->outputs[o].name,
                                  2 + 2 * (network->layers_count + o)};
        VX_TRY(output_write(record, signature, o, &as, answer));
        VX_TRY(coords_write(record, signature, o, answer));
    }
    return VX_OK;
}

static vx_status run_loaded(struct vx_record *record, i32 run, struct vx_model *model,
                            struct vx_answer *answer)
{
    const struct vx_signature *signature = vx_model_signature(model);
    VX_TRY(vx_engine_warm(record->engine, model, &answer->item.why));
    VX_TRY(vx_example_run(record->engine, model, &record->example, answer));
    if (run == VX_RECORD_OUTPUTS) return outputs_write(record, signature, answer);
    return layers_write(record, run, signature, answer);
}

/* The limit of a run's network.json is the example's size, and neither the user's.  What
 * the user can change is a flag of this tool. */
static void explain_size(struct vx_why *why)
{
    static const char ours[] = "/network.json: limits.voxels_max is ";
    const char *at = strstr(why->text, ours);
    if (!at) return;
    const char *size = at + sizeof ours - 1, *setting = strstr(size, "; ");
    if (!setting) return;
    setting += 2;
    struct vx_why said = {""};
    vx_why_set(&said, "the example has %.*s--%s", (int)(setting - size), size, setting);
    char *underscore = strchr(said.text, '_');
    if (underscore) *underscore = '-';
    *why = said;
}

vx_status vx_record_run(struct vx_record *record, i32 run, struct vx_why *why)
{
    struct vx_model *model;
    VX_TRY(network_write(record, run, why));
    const struct vx_model_source source = {.directory = record->work, .version = 1};
    vx_status status = vx_engine_load(record->engine, &source, NULL, why, &model);
    if (status.fault) explain_size(why);
    VX_TRY(status);
    struct vx_answer *answer = vx_alloc_zero(sizeof *answer);
    if (answer) {
        status = run_loaded(record, run, model, answer);
        if (status.fault) *why = answer->item.why;
        vx_answer_close(answer);
    }
    vx_engine_unload(record->engine, &model);
    VX_ENSURE(answer, RESOURCE_EXHAUSTED, "no memory for a request");
    vx_free(answer);
    return status;
}
