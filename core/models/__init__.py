"""Language models behind one ChatModel protocol; one concern a file."""
