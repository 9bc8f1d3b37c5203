"""How ops that are not loops are lowered, one file per family. Importing this package registers the rules."""

from . import checks as checks
from . import conv as conv
from . import matmul as matmul
from . import moving as moving
from . import pool as pool
from . import scatter as scatter
