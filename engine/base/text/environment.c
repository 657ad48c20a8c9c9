/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/text/environment.h"

#include <stdlib.h>

bool vx_environment_default(const char *name, const char *value)
{
    return setenv(name, value, 0) == 0;
}

const char *vx_environment_get(const char *name)
{
    return getenv(name);
}
