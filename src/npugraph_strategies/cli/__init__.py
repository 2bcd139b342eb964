"""The command line, ``npugraph-strategies``. Needs the extra ``cli``; importing this package does not."""
