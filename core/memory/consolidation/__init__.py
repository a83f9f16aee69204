"""The life of a lesson (`memory.consolidate=`): one policy a file, `life` runs them, off in the paper's bank."""
