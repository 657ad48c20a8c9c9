/* stdbool - for NVRTC and hipRTC, which have no C library: in C++ bool is a keyword.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_RTC_STDBOOL_H
#define VX_KERNELS_RTC_STDBOOL_H

#define __bool_true_false_are_defined 1

#endif
