# SPDX-License-Identifier: Apache-2.0
"""torchsparse/nn/functional/conv/conv_config.py of 2.1."""

_default = {"kmap_mode": "hashmap_on_the_fly", "downsample_mode": "spconv"}
_global = None


def get_global_conv_config():
    return _global


def set_global_conv_config(config):
    global _global
    _global = config


def clear_global_conv_config():
    set_global_conv_config(None)


def get_default_conv_config(conv_mode=None, training=False):
    return _default
