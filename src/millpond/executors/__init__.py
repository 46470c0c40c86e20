"""Where the engine runs: on Spark, in slots, or in the calling process."""
