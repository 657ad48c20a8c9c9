/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tools/record_network.h"

#include "engine/base/process/check.h"

#include <string.h>

/* Names of outputs, and of coordinates, that no input has. */
#define OUTPUT_NAME "voxeld.record.%d"
#define COORDS_NAME "voxeld.record.at.%d"

/* --- which layer in which run --- */

/* True if the list of names, separated by commas, has this one. */
static bool list_has(const char *names, const char *name, size_t length)
{
    for (const char *at = names; *at;) {
        size_t own = strcspn(at, ",");
        if (own == length && !memcmp(at, name, length)) return true;
        at += own + (at[own] == ',');
    }
    return false;
}

static bool network_has(const struct vx_network *network, const char *name, size_t length)
{
    for (i32 i = 0; i < network->layers_count; i++)
        if (strlen(network->layers[i].name) == length &&
            !memcmp(network->layers[i].name, name, length))
            return true;
    return false;
}

vx_status vx_record_plan_make(const struct vx_network *network, const char *names,
                              struct vx_why *why, struct vx_record_plan *plan)
{
    *plan = (struct vx_record_plan){.runs_count = 0};
    for (const char *at = names ? names : ""; *at;) {
        size_t length = strcspn(at, ",");
        VX_ENSURE_WHY(network_has(network, at, length), why, NOT_FOUND,
                      "there is no such layer",
                      "expected the name of a layer, got \"%.*s\"",
                      (int)(length < VX_NAME_SHOWN ? length : VX_NAME_SHOWN), at);
        at += length + (at[length] == ',');
    }
    for (i32 i = 0; i < network->layers_count; i++) {
        const char *name = network->layers[i].name;
        bool wanted = !names || list_has(names, name, strlen(name));
        plan->run[i] = wanted ? plan->layers_count++ : -1;
    }
    const i32 count = plan->layers_count;
    plan->runs_count = (count + VX_NETWORK_OUTPUTS_MAX - 1) / VX_NETWORK_OUTPUTS_MAX;
    if (plan->runs_count < VX_RECORD_APART)
        plan->runs_count = count < VX_RECORD_APART ? count : VX_RECORD_APART;
    for (i32 i = 0; i < network->layers_count; i++) {
        if (plan->run[i] < 0) continue;
        plan->output[i] = plan->run[i] / plan->runs_count;
        plan->run[i] %= plan->runs_count;
        VX_ASSERT(plan->output[i] < VX_NETWORK_OUTPUTS_MAX);
    }
    return VX_OK;
}

/* --- the text --- */

static void put_text(struct vx_page *page, const char *text)
{
    vx_page_add(page, "\"");
    for (const char *at = text; *at; at++)
        if (*at == '"' || *at == '\\' || (unsigned char)*at < ' ')
            vx_page_add(page, "\\u%04x", (unsigned char)*at);
        else
            vx_page_add(page, "%c", *at);
    vx_page_add(page, "\"");
}

static void put_value(struct vx_page *page, const struct vx_json *value)
{
    const bool object = value->kind == VX_JSON_OBJECT;
    switch (value->kind) {
    case VX_JSON_NULL: vx_page_add(page, "null"); return;
    case VX_JSON_BOOL: vx_page_add(page, value->boolean ? "true" : "false"); return;
    case VX_JSON_I64: vx_page_add(page, "%lld", (long long)value->number); return;
    case VX_JSON_F64: vx_page_add(page, "%.17g", value->real); return;
    case VX_JSON_TEXT: put_text(page, value->text); return;
    case VX_JSON_LIST:
    case VX_JSON_OBJECT: break;
    }
    vx_page_add(page, object ? "{" : "[");
    VX_JSON_EACH(child, value)
    {
        if (child != value->first) vx_page_add(page, ",");
        if (object) {
            put_text(page, child->key);
            vx_page_add(page, ":");
        }
        put_value(page, child); /* VX_JSON_DEPTH_MAX deep at most */
    }
    vx_page_add(page, object ? "}" : "]");
}

/* Marks the layers that the marked ones need. */
static void close_over(const struct vx_network *network, bool keep[VX_LAYERS_MAX])
{
    for (i32 i = network->layers_count; i-- > 0;) {
        const struct vx_layer *layer = &network->layers[i];
        if (!keep[i]) continue;
        for (i32 j = 0; j < layer->inputs_count; j++)
            if (layer->inputs[j] >= 0) keep[layer->inputs[j]] = true;
        if (layer->of >= 0) keep[layer->of] = true;
        if (layer->onto >= 0) keep[layer->onto] = true;
        if (layer->by >= 0) keep[layer->by] = true;
    }
}

/* One layer of a set names its coordinates. */
static void put_outputs(const struct vx_network *network,
                        const struct vx_record_plan *plan, i32 run, struct vx_page *page)
{
    bool named[VX_SETS_MAX] = {true}; /* those of set 0 are the request's */
    const char *comma = "";
    for (i32 i = 0; i < network->layers_count; i++) {
        const struct vx_layer *layer = &network->layers[i];
        if (plan->run[i] != run) continue;
        vx_page_add(page, "%s{\"name\":\"" OUTPUT_NAME "\",\"layer\":", comma,
                    plan->output[i]);
        put_text(page, layer->name);
        if (layer->op != VX_OP_TO_DENSE && !named[layer->set]) {
            vx_page_add(page, ",\"coords\":\"" COORDS_NAME "\"", layer->set);
            named[layer->set] = true;
        }
        vx_page_add(page, "}");
        comma = ",";
    }
}

static void put_layers(const struct vx_record_source *source, const bool *keep,
                       struct vx_page *page)
{
    i32 index = 0;
    const char *comma = "";
    VX_JSON_EACH(layer, vx_json_find(source->root, "layers"))
    {
        if (!keep[index++]) continue;
        vx_page_add(page, "%s", comma);
        put_value(page, layer);
        comma = ",";
    }
}

/* A network has "fp8" only with a layer in FP8. */
static void put_fp8(const struct vx_record_source *source, const bool *keep,
                    struct vx_page *page)
{
    const struct vx_network *network = source->network;
    bool any = false;
    for (i32 i = 0; i < network->layers_count; i++)
        any = any || (keep[i] && network->layers[i].fp8_scale > 0);
    if (!any) return;
    vx_page_add(page, ",\"fp8\":");
    put_value(page, vx_json_find(source->root, "fp8"));
}

static bool has_dense(const struct vx_network *network, const bool *keep)
{
    for (i32 i = 0; i < network->layers_count; i++)
        if (keep[i] && network->layers[i].op == VX_OP_TO_DENSE) return true;
    return false;
}

/* limits.sets names a layer on each set, which may not be one of this run, and limits.samples
 * is for a run with a dense output. */
static void put_limits(const struct vx_record_source *source, const bool *keep,
                       struct vx_page *page)
{
    const struct vx_network *network = source->network;
    const char *comma = "";
    vx_page_add(page, "\"limits\":{\"voxels_max\":%lld,",
                (long long)(source->voxels > 1 ? source->voxels : 1));
    if (has_dense(network, keep))
        vx_page_add(page, "\"samples\":%d,", network->samples_max);
    vx_page_add(page, "\"sets\":{");
    for (i32 s = 1; s < network->sets_count; s++) {
        i32 found = -1;
        for (i32 i = 0; i < network->layers_count && found < 0; i++)
            if (keep[i] && network->layers[i].set == s &&
                !vx_op_is_last(network->layers[i].op))
                found = i;
        if (found < 0 || !network->sets[s].rows_max) continue;
        vx_page_add(page, "%s", comma);
        put_text(page, network->layers[found].name);
        vx_page_add(page, ":%lld", (long long)network->sets[s].rows_max);
        comma = ",";
    }
    vx_page_add(page, "}}");
}

vx_status vx_record_text(const struct vx_record_source *source,
                         const struct vx_record_plan *plan, i32 run, struct vx_why *why,
                         struct vx_page *page)
{
    const struct vx_network *network = source->network;
    bool keep[VX_LAYERS_MAX];
    for (i32 i = 0; i < network->layers_count; i++)
        keep[i] = run == VX_RECORD_OUTPUTS || plan->run[i] == run;
    close_over(network, keep);
    vx_page_add(page, "{\"format\":1,\"warmup\":[],\"precision\":\"%s\",\"inputs\":",
                vx_precision_name(source->precision));
    put_value(page, vx_json_find(source->root, "inputs"));
    vx_page_add(page, ",\"layers\":[");
    put_layers(source, keep, page);
    vx_page_add(page, "],\"outputs\":");
    if (run == VX_RECORD_OUTPUTS) {
        put_value(page, vx_json_find(source->root, "outputs"));
    } else {
        vx_page_add(page, "[");
        put_outputs(network, plan, run, page);
        vx_page_add(page, "]");
    }
    put_fp8(source, keep, page);
    vx_page_add(page, ",");
    put_limits(source, keep, page);
    vx_page_add(page, "}");
    VX_ENSURE_WHY(page->used + 1 < page->bytes, why, RESOURCE_EXHAUSTED,
                  "network.json is too long to be recorded",
                  "network.json is too long to be recorded: expected under %zu bytes",
                  page->bytes);
    return VX_OK;
}
