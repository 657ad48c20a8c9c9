/* stub_hip - what test_gpu_hip tells the stand-in of AMD's library to answer.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_STUB_HIP_H
#define VX_TESTS_STUB_HIP_H

#define STUB_ATTRIBUTES 128

struct stub_hip {
    int init;    /* the code of hipInit */
    int version; /* as hipDriverGetVersion returns it */
    int count;
    int pointer_device;              /* of any device pointer */
    int attributes[STUB_ATTRIBUTES]; /* by HIP's numbers; -1 = refused */
    char bus[32];                    /* of device 0; empty = refused */
    char arch[64];                   /* gcnArchName in the struct */
    int struct_code;                 /* of hipGetDevicePropertiesR0600 */
    unsigned ipc_flags;              /* of the last hipIpcOpenMemHandle */
    int used;                        /* device of the last hipSetDevice; -1 = none */
};

#endif
