/* view - the options by which a command sets how a picture is drawn.
 *
 *   struct view_options view = VIEW_OPTIONS;   and rows view.view, view.size, ... in a .def
 *   struct render_view render;
 *   int code = view_read(&command, &view, &render);
 *
 * Owner    texts are borrowed.
 * Thread   main.
 * Limits   those of render.h.
 * Fails    CLI_USAGE, with what was expected on stderr.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_VIEW_H
#define VOXEL_CLIENTS_CLI_VIEW_H

#include "clients/cli/options.h"
#include "clients/cli/render/render.h"

struct view_options {
    const char *view, *size; /* NULL = the default */
    const char *up;
    bool isometric;
};
#define VIEW_OPTIONS ((struct view_options){.up = "z"})

int view_read(const struct command *command, const struct view_options *options,
              struct render_view *view);

#endif
