/* both - marks a small function that the host and the device share.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_BOTH_H
#define VX_KERNELS_BOTH_H

#if defined(__CUDACC__) || defined(__HIP__) || defined(__AMDGCN__)
#define VX_BOTH                                                                          \
    static inline __attribute__((host)) __attribute__((device)) __attribute__((unused))
#else
#define VX_BOTH static inline
#endif

#endif
