"""Changes as messages: what goes to brokers, search engines and web hooks, from a pipeline or straight from the log."""
