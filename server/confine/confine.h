/* confine - takes from a process of ours what it does not need: privileges, core dumps,
 * system calls.
 *
 *   vx_confine_cores(false);                             serve, before it starts a process
 *   vx_confine_privileges();                             the same, unless it may use GPUs
 *   const struct vx_confine_options options = {VX_CONFINE_CPU, device_on_end};
 *   VX_TRY(vx_confine_calls(&options, &why));            worker, its device is open
 *
 * A worker computes on numbers of strangers with models of others and, on a GPU, with a
 * driver that nobody can read.  Should one of them be turned against it, the process still
 * cannot start a program, open a connection, or look into another process.  The filter is
 * set when the device is open, because opening one loads libraries and starts threads; no
 * request and no model comes before that.
 *
 * A call that no worker makes ends the process by SIGSYS.  Its handler reports the call
 * first, which is why the filter lets the kernel send the signal (SCMP_ACT_TRAP) and not
 * kill at once: the call does not run either way, and the filter refuses to change the
 * handler.  SIGSYS in wait status tells the front even if no report comes.
 *
 * Owner    the process; nothing is ever given back.
 * Thread   calls: any, for all threads of the process.  The others: main, before others.
 * Limits   -
 * Fails    calls: UNIMPLEMENTED where the kernel takes no filter.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_CONFINE_H
#define VX_SERVER_CONFINE_H

#include "engine/base/status.h"

enum vx_confine_profile {
    VX_CONFINE_CPU,  /* only what confine_calls.def allows */
    VX_CONFINE_CUDA, /* all but what confine_calls.def refuses */
    VX_CONFINE_HIP,  /* the same, and it may start programs: AMD's compiler is one */
};

/* Called in a signal handler, on the thread whose call it was; the process then ends. */
typedef void vx_confine_on_end(int number, const char *name);

struct vx_confine_options {
    enum vx_confine_profile profile;
    vx_confine_on_end *on_end; /* may be NULL */
};

VX_MUST_USE vx_status vx_confine_calls(const struct vx_confine_options *options,
                                       struct vx_why *why);

/* Whether a build with a sanitizer leaves this call alone, which needs it; false in others. */
bool vx_confine_is_sanitizers(const char *name);

/* No program that this process or a child starts gets more rights than it has, whatever the
 * mode of its file. */
void vx_confine_privileges(void);
/* Unless cores are `wanted`: neither the kernel nor a debugger writes one of this process or
 * of its children with anything but what lies in files. */
void vx_confine_cores(bool wanted);

#endif
