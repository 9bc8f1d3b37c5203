"""ctypes binding of oneDNN's C API, the only importer of the library. Importing this package loads nothing.

* `library`: finds and loads libdnnl on first use; `capi`: its prototypes; `descriptors`: shapes and layouts.
* `primitives`: what a compiled program executes, on memory that the program owns.
* `eager`: the same as functions on NumPy arrays, with a bounded cache of primitives.
* `kernels`: registers those functions as kernels of ops.
* `lowerings`: offers the primitives to the compiler.
"""

from __future__ import annotations

from .capi import Unsupported as Unsupported
from .library import available as available
from .library import isa as isa
from .library import path as path
from .library import version as version
