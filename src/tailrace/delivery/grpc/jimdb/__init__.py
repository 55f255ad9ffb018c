"""JimDB: tables pulled range by range, and pipelines that somebody subscribes to."""
