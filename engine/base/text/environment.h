/* environment - sets environment variables for libraries that have no other settings.
 *
 * No other file touches the environment; the daemon's own settings are in config.def.  A
 * library that reads a variable when it is loaded gets it set before.  A variable that
 * the user has set is not changed.
 *
 *   vx_environment_default("OPENBLAS_CORETYPE", "SkylakeX");
 *
 * Thread   default: before the process starts a thread that reads the environment.
 * Fails    false when the system has no memory for the variable.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_ENVIRONMENT_H
#define VX_ENGINE_BASE_ENVIRONMENT_H

#include "engine/base/types.h"

/* Sets the variable unless it is set. */
VX_MUST_USE bool vx_environment_default(const char *name, const char *value);
/* Where a vendor's installer says that it put its files; NULL = not set. */
const char *vx_environment_get(const char *name);

#endif
