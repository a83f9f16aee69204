"""Software engineering: a repository to mend, in a sandbox."""
