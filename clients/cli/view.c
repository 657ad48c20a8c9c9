/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/view.h"

#include "clients/cli/number.h"

#include <math.h>
#include <string.h>

static bool parse_pair(const char *text, char between, double *first, double *second)
{
    const char *end = number_read(text, first);
    if (!end || *end != between) return false;
    end = number_read(end + 1, second);
    return end && *end == '\0';
}

static bool are_pixels(double number)
{
    return number >= RENDER_PIXELS_MIN && number <= RENDER_PIXELS_MAX &&
           number == floor(number);
}

int view_read(const struct command *command, const struct view_options *options,
              struct render_view *view)
{
    *view = RENDER_VIEW;
    view->isometric = options->isometric;
    double a, b;
    if (options->view) {
        if (!parse_pair(options->view, ',', &a, &b) || b < -89 || b > 89)
            return options_bad(command, "view", "AZIMUTH,ELEVATION in degrees, as 40,25",
                               options->view);
        view->azimuth = a;
        view->elevation = b;
    }
    if (options->size) {
        if (!parse_pair(options->size, 'x', &a, &b) || !are_pixels(a) || !are_pixels(b))
            return options_bad(command, "size", "WIDTHxHEIGHT, 16 to 4096 pixels each",
                               options->size);
        view->width = (int32_t)a;
        view->height = (int32_t)b;
    }
    if (strlen(options->up) != 1 || !strchr("xyz", *options->up))
        return options_bad(command, "up", "x, y or z", options->up);
    view->up = *options->up;
    return CLI_DONE;
}
