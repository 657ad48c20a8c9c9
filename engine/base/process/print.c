/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/print.h"

#include <stdarg.h>
#include <stdio.h>

void vx_print(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stdout, format, args);
    va_end(args);
}

void vx_print_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fflush(stdout); /* both may go to one file */
    vfprintf(stderr, format, args);
    va_end(args);
}
