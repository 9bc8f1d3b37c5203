"""How ops that are not loops are lowered, one file per family. Importing this package registers the rules."""

from . import matmul as matmul
