/* worker_device - opens the engine of a worker's device with the worker's settings.
 *
 *   VX_TRY(vx_worker_device_open(config, shared, &running, &why, &engine));
 *
 * Owner    the caller owns the engine; config and shared outlive it.
 * Thread   device.
 * Limits   those of the settings.
 * Fails    as vx_engine_open; INVALID_ARGUMENT for an unknown device.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_WORKER_DEVICE_H
#define VX_SERVER_WORKER_DEVICE_H

#include "engine/engine.h"
#include "server/base/config.h"
#include "server/ipc/shared.h"

VX_MUST_USE vx_status vx_worker_device_open(const struct vx_config *config,
                                            const struct vx_shared *shared,
                                            const struct vx_progress *running,
                                            struct vx_why *why,
                                            struct vx_engine **engine);

#endif
