"""The layers, one file per family; `weft.nn` holds them all."""
