/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/notes.h"

#include "engine/base/process/alloc.h"
#include "engine/network/blocks.h"

#include <stdio.h>
#include <string.h>

/* Most names in one note; the rest is counted. */
#define NAMES_SHOWN 8

/* A note that grows name by name. */
struct note {
    struct vx_page *page;
    const char *first; /* the text before the first name */
    i32 count;
};

static void note_name(struct note *note, const char *name)
{
    if (!note->count) vx_page_add(note->page, "%s ", note->first);
    if (note->count < NAMES_SHOWN)
        vx_page_add(note->page, "%s%.*s", note->count ? ", " : "", VX_NAME_SHOWN, name);
    note->count++;
}

static void note_close(const struct note *note, const char *last)
{
    if (!note->count) return;
    if (note->count > NAMES_SHOWN)
        vx_page_add(note->page, " and %d more", note->count - NAMES_SHOWN);
    vx_page_add(note->page, "%s", last);
}

static void note_end(const struct note *note, const char *last)
{
    note_close(note, last);
    if (note->count) vx_page_add(note->page, "\n");
}

/* True for PyTorch's counter of training batches, which inference does not use. */
static bool is_counter(const char *name)
{
    const char *last = strrchr(name, '.');
    return !strcmp(last ? last + 1 : name, "num_batches_tracked");
}

/* Counts how many layers read each tensor; `readers` is in the file's order. */
static void count_readers(const struct vx_network *network,
                          const struct vx_safetensors *file, u16 *readers)
{
    for (i32 i = 0; i < network->layers_count; i++)
        for (int role = 0; role < VX_TENSORS_PER_LAYER; role++) {
            const char *name = network->layers[i].tensors[role];
            if (!name) continue;
            readers[vx_safetensors_find(file, name) - vx_safetensors_get(file, 0)]++;
        }
}

static void notes_tensors(const struct vx_network *network,
                          const struct vx_safetensors *file, struct vx_page *page)
{
    struct note unread = {page, "no layer reads", 0};
    struct note shared = {page, "more than one layer reads", 0};
    i32 count = vx_safetensors_count(file);
    u16 *readers = vx_alloc_zero(((size_t)count + 1) * sizeof *readers);
    if (!readers) return;
    count_readers(network, file, readers);
    for (i32 i = 0; i < count; i++) {
        const char *name = vx_safetensors_get(file, i)->name;
        if (!is_counter(name) && !readers[i]) note_name(&unread, name);
    }
    note_end(&unread, "; if training used it, network.json lacks a layer");
    for (i32 i = 0; i < count; i++)
        if (readers[i] > 1) note_name(&shared, vx_safetensors_get(file, i)->name);
    note_end(&shared, "; if the layers do not share weights, a tensor name is wrong");
    vx_free(readers);
}

static vx_status is_all(const struct vx_safetensors *file, const char *name, f32 value,
                        struct vx_why *why, bool *same)
{
    const struct vx_tensor *tensor = vx_safetensors_find(file, name);
    f32 *values = vx_alloc((size_t)tensor->count * sizeof *values);
    VX_ENSURE(values, RESOURCE_EXHAUSTED, "no memory for notes about a model");
    vx_status status = vx_safetensors_read_f32(file, tensor, why, values);
    *same = !status.fault;
    for (i64 i = 0; *same && i < tensor->count; i++) *same = values[i] == value;
    vx_free(values);
    return status;
}

/* A NaN or infinity in a weight spreads into the rows that use it; that of a running_var
 * makes finite numbers that are wrong. */
static vx_status notes_finite(const struct vx_network *network,
                              const struct vx_safetensors *file, struct vx_why *why,
                              struct vx_page *page)
{
    struct note note = {page, "NaN or infinity in", 0};
    for (i32 i = 0; i < network->layers_count; i++)
        for (int role = 0; role < VX_TENSORS_PER_LAYER; role++) {
            const char *name = network->layers[i].tensors[role];
            bool finite = true;
            if (!name) continue;
            VX_TRY(vx_safetensors_is_finite(file, vx_safetensors_find(file, name), why,
                                            &finite));
            if (!finite) note_name(&note, name);
        }
    note_end(&note, "; rows of answers may be NaN, infinite or wrong");
    return VX_OK;
}

/* Batch norms whose statistics still have their initial values.  Without an eps it is a factor
 * and a summand for each channel, as the exporter writes them. */
static vx_status notes_fresh(const struct vx_network *network,
                             const struct vx_safetensors *file, struct vx_why *why,
                             struct vx_page *page)
{
    struct note note = {page, "running_mean is 0 and running_var 1 throughout in", 0};
    for (i32 i = 0; i < network->layers_count; i++) {
        const struct vx_layer *layer = &network->layers[i];
        bool zero, one;
        if (layer->op != VX_OP_BATCH_NORM || layer->eps == 0) continue;
        VX_TRY(is_all(file, layer->tensors[VX_TENSOR_RUNNING_MEAN], 0, why, &zero));
        VX_TRY(is_all(file, layer->tensors[VX_TENSOR_RUNNING_VAR], 1, why, &one));
        if (zero && one) note_name(&note, layer->name);
    }
    note_end(&note, "; its statistics were never gathered");
    return VX_OK;
}

/* Of a channel that training never sees a running_var decays to 0, but hardly of all. */
static vx_status notes_zero(const struct vx_network *network,
                            const struct vx_safetensors *file, struct vx_why *why,
                            struct vx_page *page)
{
    struct note note = {page, "running_var is 0 throughout in", 0};
    for (i32 i = 0; i < network->layers_count; i++) {
        const struct vx_layer *layer = &network->layers[i];
        bool zero;
        if (layer->op != VX_OP_BATCH_NORM) continue;
        VX_TRY(is_all(file, layer->tensors[VX_TENSOR_RUNNING_VAR], 0, why, &zero));
        if (zero) note_name(&note, layer->name);
    }
    note_end(&note,
             "; it divides by the root of eps alone, as if its input never varied");
    return VX_OK;
}

static vx_status notes_empty(const struct vx_network *network,
                             const struct vx_safetensors *file, struct vx_why *why,
                             struct vx_page *page)
{
    struct note note = {page, "a weight is 0 throughout in", 0};
    for (i32 i = 0; i < network->layers_count; i++) {
        const struct vx_layer *layer = &network->layers[i];
        bool zero;
        if (!vx_op_is_conv(layer->op) && layer->op != VX_OP_LINEAR) continue;
        VX_TRY(is_all(file, layer->tensors[VX_TENSOR_WEIGHT], 0, why, &zero));
        if (zero) note_name(&note, layer->name);
    }
    note_end(&note, "; its result does not depend on its input");
    return VX_OK;
}

static void notes_eps(const struct vx_network *network, struct vx_page *page)
{
    struct note note = {page, "\"eps\" is not set for", 0};
    for (i32 i = 0; i < network->layers_count; i++) {
        const struct vx_layer *layer = &network->layers[i];
        if (vx_op_is_norm(layer->op) && !layer->eps_said) note_name(&note, layer->name);
    }
    note_end(&note, "; 1e-05, PyTorch's default, is used, because the weights file does "
                    "not hold it (OpenPCDet trains with 1e-3, TRELLIS with 1e-6)");
}

/* torch.nn.GroupNorm(4, 8) of rows [N, C] has the same tensors, runs, and answers numbers of
 * the same size. */
static void notes_group_norm(const struct vx_network *network, struct vx_page *page)
{
    struct note note = {page, "statistics over all voxels of a sample in", 0};
    for (i32 i = 0; i < network->layers_count; i++)
        if (network->layers[i].op == VX_OP_GROUP_NORM)
            note_name(&note, network->layers[i].name);
    note_end(&note,
             "; torch.nn.GroupNorm on rows [N, C] has those of each voxel, which is "
             "served with 1 group only, as layer_norm");
}

/* In spconv code norm_fn sets eps beside momentum, which is 0.01 or 0.1. */
#define EPS_USUAL_MAX 1e-2
static void notes_eps_large(const struct vx_network *network, struct vx_page *page)
{
    struct note note = {page, "\"eps\" is 0.01 or more for", 0};
    for (i32 i = 0; i < network->layers_count; i++)
        if (network->layers[i].eps_said && network->layers[i].eps >= EPS_USUAL_MAX)
            note_name(&note, network->layers[i].name);
    note_end(&note,
             "; usual values are 1e-8 to 1e-3; check that it is not the momentum, which "
             "is 0.01 or 0.1");
}

static void notes_layouts(const struct vx_network *network, struct vx_page *page)
{
    struct note note = {page, "\"layout\" is not set for", 0};
    for (i32 i = 0; i < network->layers_count; i++) {
        const struct vx_layer *layer = &network->layers[i];
        if (vx_op_is_conv(layer->op) && !layer->layout_said)
            note_name(&note, layer->name);
    }
    note_end(&note,
             "; the shape of the weight allows only one, which voxeld check shows");
}

/* Two libraries name a weight so, and both run x fastest: read in another order each offset gets
 * another's weights, and the answers have the usual size. */
static void notes_kernels(const struct vx_network *network, struct vx_page *page)
{
    struct note note = {
        page, "a tensor that is named \"kernel\", with another library's layout, in", 0};
    for (i32 i = 0; i < network->layers_count; i++) {
        const struct vx_layer *layer = &network->layers[i];
        const char *name = layer->tensors[VX_TENSOR_WEIGHT];
        const char *last = name ? strrchr(name, '.') : NULL;
        if (!layer->layout_said || layer->layout == VX_LAYOUT_MINKOWSKI ||
            layer->layout == VX_LAYOUT_TORCHSPARSE)
            continue;
        if (last && !strcmp(last + 1, "kernel")) note_name(&note, layer->name);
    }
    note_end(&note,
             "; MinkowskiEngine and TorchSparse name weights so: if one of them trained "
             "it, set its layout");
}

/* How many layers have each layout in network.json.  One that the shape decided may have
 * been written by several libraries, so it speaks for none; letters name no library. */
static i32 count_libraries(const struct vx_network *network, i32 layers[VX_LAYOUTS_COUNT])
{
    i32 libraries = 0;
    for (i32 i = 0; i < network->layers_count; i++) {
        const struct vx_layer *layer = &network->layers[i];
        if (!layer->layout_said || layer->layout >= VX_LAYOUT_LETTERS) continue;
        libraries += !layers[layer->layout]++;
    }
    return libraries;
}

/* The library of most layers is shown first, and of the others the layers, too. */
static void notes_libraries(const struct vx_network *network, struct vx_page *page)
{
    i32 layers[VX_LAYOUTS_COUNT] = {0};
    enum vx_layout most = VX_LAYOUT_UNSAID;
    if (count_libraries(network, layers) < 2) return;
    for (enum vx_layout at = 1; at < VX_LAYOUT_LETTERS; at++)
        if (layers[at] > layers[most]) most = at;
    vx_page_add(page, "layouts of several libraries: %s (%d layer%s)",
                vx_layout_name(most), layers[most], layers[most] > 1 ? "s" : "");
    for (enum vx_layout at = 1; at < VX_LAYOUT_LETTERS; at++) {
        char first[48];
        struct note note = {page, first, 0};
        if (at == most) continue;
        snprintf(first, sizeof first, ", %s (%d:", vx_layout_name(at), layers[at]);
        for (i32 i = 0; i < network->layers_count; i++)
            if (network->layers[i].layout_said && network->layers[i].layout == at)
                note_name(&note, network->layers[i].name);
        note_close(&note, ")");
    }
    vx_page_add(page, "; a weight may have the same shape in each and other numbers (1^3 "
                      "of spconv and flexgemm): if one library trained all, set its "
                      "layout everywhere\n");
}

/* Where there is a shape, vx_blocks_check has refused what is wrong. */
static void notes_blocks(const struct vx_network *network, struct vx_page *page)
{
    struct note note = {page, "rule \"floor\" without a spatial shape for", 0};
    for (i32 i = 0; i < network->layers_count; i++) {
        const struct vx_layer *layer = &network->layers[i];
        i32 input = vx_network_set(network, layer->inputs[0]);
        if (vx_blocks_are_cut(layer) && !network->sets[input].shape[0])
            note_name(&note, layer->name);
    }
    note_end(&note,
             "; where the stride does not divide the shape of its input, spconv and "
             "FlexGEMM make no voxel of the rest: set \"rule\": \"spconv\" and "
             "\"spatial_shape\" if that happens");
}

/* How far layers see along a column: the widest kernel, stride or dense shape. */
static i32 reach_of(const struct vx_network *network, int column)
{
    i32 reach = 1;
    for (i32 i = 0; i < network->layers_count; i++) {
        const struct vx_layer *layer = &network->layers[i];
        const i32 spans[] = {layer->kernel[column], layer->stride[column],
                             layer->shape[column]};
        for (size_t k = 0; k < VX_COUNT(spans); k++)
            if (spans[k] > reach) reach = spans[k];
    }
    return reach;
}

/* What such a network was trained with are fewer columns, which would be others here: its own
 * [b, y, x] is three axes of sample 0, and no voxel has its neighbours. */
static void notes_flat(const struct vx_network *network, struct vx_page *page)
{
    if (network->sets[0].shape[0] || reach_of(network, 0) == 1) return;
    if (reach_of(network, 2) > 1) return;
    const bool line = reach_of(network, 1) == 1;
    vx_page_add(
        page,
        "no layer sees across column%s 3 of coords, as in a network of %s: requests "
        "then send [b, %s]; set \"spatial_shape\" %s, so that other columns are "
        "refused\n",
        line ? "s 2 and" : "", line ? "one axis" : "two axes",
        line ? "x, 0, 0" : "y, x, 0", line ? "[W, 1, 1]" : "[H, W, 1]");
}

/* Voxels outside of `shape` are refused with the request, which may be any that the set has. */
static void notes_dense(const struct vx_network *network, struct vx_page *page)
{
    for (i32 i = 0; i < network->layers_count; i++) {
        const struct vx_layer *layer = &network->layers[i];
        const i32 *is = layer->shape, *set = network->sets[layer->set].shape;
        if (layer->op != VX_OP_TO_DENSE || !set[0]) continue;
        if (is[0] >= set[0] && is[1] >= set[1] && is[2] >= set[2]) continue;
        vx_page_add(
            page,
            "shape %dx%dx%d of %.*s is smaller than that of its voxels, %dx%dx%d; "
            "a request with a voxel outside of it is refused\n",
            is[0], is[1], is[2], VX_NAME_SHOWN, layer->name, set[0], set[1], set[2]);
    }
}

static void notes_limits(const struct vx_network *network, struct vx_page *page)
{
    struct note note = {page, "no \"limits.sets\" for the children that are made by", 0};
    for (i32 i = 1; i < network->sets_count; i++)
        if (vx_set_is_unbounded(&network->sets[i]))
            note_name(&note, network->layers[network->sets[i].layer].name);
    note_end(&note, "; each voxel counts with all that it can have, so that only small "
                    "requests fit, and one may take as long as the most that fit: set "
                    "the most that there are");
}

vx_status vx_notes_write(const struct vx_network *network,
                         const struct vx_safetensors *file, struct vx_why *why,
                         struct vx_page *page)
{
    notes_tensors(network, file, page);
    VX_TRY(notes_finite(network, file, why, page));
    VX_TRY(notes_fresh(network, file, why, page));
    VX_TRY(notes_zero(network, file, why, page));
    VX_TRY(notes_empty(network, file, why, page));
    notes_group_norm(network, page);
    notes_eps(network, page);
    notes_eps_large(network, page);
    notes_layouts(network, page);
    notes_kernels(network, page);
    notes_libraries(network, page);
    notes_blocks(network, page);
    notes_flat(network, page);
    notes_dense(network, page);
    notes_limits(network, page);
    return VX_OK;
}
