"""What a program consists of: steps, and the memory they read and write. Made by lowering, run by `weft.runtime.program`."""
