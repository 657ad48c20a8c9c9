/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/tools.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/print.h"
#include "engine/base/text/typed.h"
#include "engine/engine.h"
#include "server/repository/repository.h"

#include <string.h>

/* A line of the table has under 100 characters; this holds VX_LAYERS_MAX of them. */
#define DESCRIPTION_BYTES (128 * VX_LAYERS_MAX)

static const char check_usage[] =
    "voxeld check MODEL_DIRECTORY [VERSION]\n"
    "\n"
    "Reads MODEL_DIRECTORY/network.json and MODEL_DIRECTORY/VERSION/weights.safetensors\n"
    "(version 1 if none is said) as the server would, and prints inputs, layers with "
    "the\n"
    "layout of their weights, outputs, limits, and notes: what loads and may still not "
    "be\n"
    "what was trained. Exit code 1: it cannot be served, and why.\n"
    "\n" VX_TOOL_COORDS;

int vx_tool_check(int count, char **arguments)
{
    if (vx_help_asked(count, arguments)) {
        vx_print("%s", check_usage);
        return 0;
    }
    if (count < 1 || count > 2 || arguments[0][0] == '-') {
        vx_print_error("voxeld check: expected MODEL_DIRECTORY [VERSION], got %s\n",
                       count < 1                ? "nothing"
                       : arguments[0][0] == '-' ? arguments[0]
                                                : "more");
        return 2;
    }
    i32 version = count == 2 ? (i32)vx_repository_version(arguments[1]) : 1;
    if (!version) {
        vx_print_error(
            "voxeld check: expected VERSION as a whole number from 1 to %d, got "
            "\"%.64s\"\n",
            INT32_MAX, arguments[1]);
        return 2;
    }
    struct vx_model_source source = {arguments[0], version};
    struct vx_signature signature;
    struct vx_why why = {""};
    char *text = vx_alloc(DESCRIPTION_BYTES);
    if (!text) return 1;
    vx_status st = vx_model_describe(&source, &why, &signature, text, DESCRIPTION_BYTES);
    if (st.fault)
        vx_print_error("voxeld check %s: %s: %s\n", arguments[0],
                       vx_code_name(vx_status_code(st)), vx_status_text(st, &why));
    else
        vx_print("%s", text);
    vx_free(text);
    return st.fault ? 1 : 0;
}
