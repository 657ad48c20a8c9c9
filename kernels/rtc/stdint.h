/* stdint - for NVRTC and hipRTC, which have no C library.
 *
 * The sizes are those of the host (LP64), so that a struct of arguments is the same on
 * both sides.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_RTC_STDINT_H
#define VX_KERNELS_RTC_STDINT_H

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef long intptr_t;
typedef unsigned long uintptr_t;

#define INT8_MIN          (-128)
#define INT8_MAX          127
#define UINT8_MAX         255
#define INT16_MIN         (-32768)
#define INT16_MAX         32767
#define UINT16_MAX        65535
#define INT32_MIN         (-2147483647 - 1)
#define INT32_MAX         2147483647
#define UINT32_MAX        4294967295u
#define INT64_MIN         (-9223372036854775807l - 1)
#define INT64_MAX         9223372036854775807l
#define UINT64_MAX        18446744073709551615ul
#define INT32_C(number_)  number_
#define UINT32_C(number_) number_##u
#define INT64_C(number_)  number_##l
#define UINT64_C(number_) number_##ul

#endif
