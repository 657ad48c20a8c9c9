# What a release build does against an attacker who has found a mistake of ours: the stack is guarded, libc checks
# the sizes that the compiler knows, code lies at a random address, and no table of addresses can be written.
# What it costs is in deploy/README.md.  hardening-check reads the result in tests/deploy/test_package.py.
#
# SPDX-License-Identifier: Apache-2.0
option(VX_HARDEN "Harden release builds" ON)
# Sanitizers watch the same memory, and better; libc's checks would hide from them what they look for.
if(VX_HARDEN AND NOT VX_SANITIZE AND NOT VX_FUZZ)
  set(vx_harden -fPIE -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND vx_harden -fstack-clash-protection -fcf-protection)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    list(APPEND vx_harden -mbranch-protection=standard)
    if(CMAKE_C_COMPILER_ID STREQUAL GNU) # clang has it for x86 alone
      list(APPEND vx_harden -fstack-clash-protection)
    endif()
  endif()
  # In the flags, not in the options of targets: -fPIC of a library for others must come after -fPIE.
  list(JOIN vx_harden " " vx_harden)
  string(APPEND CMAKE_C_FLAGS_RELEASE " ${vx_harden}")
  string(APPEND CMAKE_EXE_LINKER_FLAGS_RELEASE " -pie -Wl,-z,relro,-z,now,-z,noexecstack")
endif()
