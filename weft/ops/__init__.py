"""What can be computed: one record per op, one file per family. `registry` explains what a record holds."""
