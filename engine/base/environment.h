/* environment - the one place that touches environment variables, for libraries that read nothing
 * else.
 *
 * Our own settings never come from here (config.def).  A library that chooses its code by a
 * variable is told before it is loaded; what the user has set already is left alone.
 *
 *   vx_environment_default("OPENBLAS_CORETYPE", "SkylakeX");
 *
 * Thread   a process that has started no thread which reads the environment yet.
 * Fails    false when the system has no memory for the variable.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_ENVIRONMENT_H
#define VX_ENGINE_BASE_ENVIRONMENT_H

#include "engine/base/types.h"

/* Sets the variable unless it is set. */
VX_MUST_USE bool vx_environment_default(const char *name, const char *value);

#endif
