/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/amd/standin.h"

#include <string.h>

/* A copy of the node; its arguments lie inside, so that the pointer to them moves too. */
static struct standin_node *node_copy(const struct standin_node *from)
{
    struct standin_node *node = standin_take();
    if (!node) return NULL;
    *node = *from;
    if (node->kind == NODE_LAUNCH) node->launch.args = node->args;
    return node;
}

static void nodes_give(struct standin_nodes *nodes)
{
    while (nodes->first) {
        struct standin_node *node = nodes->first;
        nodes->first = node->next;
        standin_give(node);
    }
    nodes->last = NULL;
}

static bool nodes_copy(const struct standin_nodes *from, struct standin_nodes *to)
{
    *to = (struct standin_nodes){NULL, NULL};
    for (const struct standin_node *it = from->first; it; it = it->next) {
        struct standin_node *node = node_copy(it);
        if (!node) {
            nodes_give(to);
            return false;
        }
        standin_append(to, node);
    }
    return true;
}

static struct standin_graph *graph_take(void)
{
    struct standin_graph *made = standin_take();
    if (made) made->kind = STANDIN_GRAPH;
    return made;
}

static void graph_give(struct standin_graph *graph)
{
    nodes_give(&graph->nodes);
    standin_give(graph);
}

int hipStreamBeginCapture(void *stream, int mode)
{
    int code = standin_enter();
    struct standin_stream *it = stream;
    if (!code && !standin_is(it, STANDIN_STREAM)) code = STANDIN_INVALID_HANDLE;
    if (!code && mode != VX_CAPTURE_THREAD_LOCAL) code = STANDIN_INVALID_VALUE;
    if (!code && it->capture) code = STANDIN_ILLEGAL_STATE;
    if (!code) it->capture = graph_take();
    if (!code && !it->capture) code = STANDIN_OUT_OF_MEMORY;
    return standin_leave(code);
}

/* As with the vendors, the capture ends even if the call fails. */
int hipStreamEndCapture(void *stream, void **recording)
{
    int code = standin_enter();
    struct standin_stream *it = stream;
    *recording = NULL;
    if (!standin_is(it, STANDIN_STREAM))
        return standin_leave(code ? code : STANDIN_INVALID_HANDLE);
    struct standin_graph *made = it->capture;
    it->capture = NULL;
    if (!code && !made) code = STANDIN_ILLEGAL_STATE;
    if (code && made) graph_give(made);
    if (!code) *recording = made;
    return standin_leave(code);
}

int hipGraphInstantiateWithFlags(void **graph, void *recording, unsigned long long flags)
{
    int code = standin_enter();
    const struct standin_graph *from = recording;
    if (!code && flags) code = STANDIN_INVALID_VALUE;
    if (!code && !standin_is(from, STANDIN_GRAPH)) code = STANDIN_INVALID_HANDLE;
    struct standin_graph *made = code ? NULL : graph_take();
    if (!code && (!made || !nodes_copy(&from->nodes, &made->nodes)))
        code = STANDIN_OUT_OF_MEMORY;
    *graph = code ? NULL : made;
    return standin_leave(code);
}

/* Each launch of a graph counts as one, as with the vendors; its kernels do not. */
int hipGraphLaunch(void *graph, void *stream)
{
    int code = standin_enter();
    struct standin_graph *it = graph;
    struct standin_nodes nodes = {NULL, NULL};
    if (!code && !(standin_is(it, STANDIN_GRAPH) && standin_is(stream, STANDIN_STREAM)))
        code = STANDIN_INVALID_HANDLE;
    if (!code && !nodes_copy(&it->nodes, &nodes)) code = STANDIN_OUT_OF_MEMORY;
    while (nodes.first) {
        struct standin_node *node = nodes.first;
        nodes.first = node->next;
        if (node->kind == NODE_LAUNCH && node->launch.seed)
            node->launch.seed = (u64)(standin.settings.seed + ++standin.kernels_run);
        standin_put(stream, node);
    }
    return standin_leave(code);
}

static int graph_close(void *graph)
{
    int code = standin_enter();
    bool is = standin_is(graph, STANDIN_GRAPH);
    if (is) graph_give(graph);
    return standin_leave(code || is ? code : STANDIN_INVALID_HANDLE);
}

int hipGraphExecDestroy(void *graph)
{
    return graph_close(graph);
}

int hipGraphDestroy(void *recording)
{
    return graph_close(recording);
}
