"""Scripts for people who change Weft: they are not part of the package."""
