"""The data pipeline: copies tables and follows the log into sinks, in bulk, on Spark."""
