"""python -m voxeld_export: the command voxeld-export.

SPDX-License-Identifier: Apache-2.0
"""

import sys

from .cli import main

sys.exit(main())
