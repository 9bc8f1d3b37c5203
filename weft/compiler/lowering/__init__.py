"""From a flow to the steps of a program, each with the memory it reads and writes."""
