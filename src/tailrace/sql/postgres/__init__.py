"""The SQL of PostgreSQL."""
