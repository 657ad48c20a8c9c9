/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/number.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char digits[] = "0123456789";

/* True if the text begins as a decimal number, for which strtod then finds the end. */
static bool is_decimal(const char *text)
{
    if (*text == '-' || *text == '+') text++;
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) return false;
    if (*text == '.') text++;
    return *text && strchr(digits, *text);
}

const char *number_read(const char *text, double *number)
{
    char *end;
    if (!is_decimal(text)) return NULL;
    errno = 0;
    *number = strtod(text, &end);
    return errno ? NULL : end;
}

bool number_is_size(double number)
{
    return isnormal(number) && number > 0 && number < 1e300;
}
