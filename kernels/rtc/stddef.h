/* stddef - for NVRTC and hipRTC, which have no C library.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_RTC_STDDEF_H
#define VX_KERNELS_RTC_STDDEF_H

typedef unsigned long size_t;
typedef long ptrdiff_t;

#ifndef NULL
#define NULL 0
#endif
#ifndef offsetof
#define offsetof(type_, member_) __builtin_offsetof(type_, member_)
#endif

#endif
