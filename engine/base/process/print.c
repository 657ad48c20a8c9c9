/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/print.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static int lost; /* why a part of the text was; 0 = none was */

void vx_print(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (vfprintf(stdout, format, args) < 0 && !lost) lost = errno;
    va_end(args);
}

void vx_print_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (fflush(stdout) && !lost) lost = errno; /* both may go to one file */
    vfprintf(stderr, format, args);
    va_end(args);
}

bool vx_print_end(void)
{
    if (fflush(stdout) && !lost) lost = errno;
    errno = lost;
    return !lost;
}
