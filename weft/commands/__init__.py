"""What each `weft` command does; `weft.cli` reads the command line and calls these."""
