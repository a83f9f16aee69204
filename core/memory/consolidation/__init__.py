"""What happens to records after they are stored (`memory.consolidate=`): a policy a file, run by the Consolidator."""
