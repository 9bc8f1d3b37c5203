"""Lowering rules for ops that are not loop nests, one file per family. Importing this package registers them."""

from . import attention as attention
from . import checks as checks
from . import conv as conv
from . import depthwise_blocks as depthwise_blocks
from . import epilogues as epilogues
from . import matmul as matmul
from . import moving as moving
from . import pool as pool
from . import random as random
from . import recurrent as recurrent
from . import scans as scans
from . import scatter as scatter
from . import searching as searching
from . import sorting as sorting
from . import table_rows as table_rows
