# SPDX-License-Identifier: Apache-2.0
"""Published networks in torch on the CPU, from their definitions: what families are held to."""
