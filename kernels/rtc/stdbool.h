/* stdbool - for compilers at run time, which have no C library: C++ has the words.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_RTC_STDBOOL_H
#define VX_KERNELS_RTC_STDBOOL_H

#define __bool_true_false_are_defined 1

#endif
