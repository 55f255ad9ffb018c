"""The interface of JimDB: tables pulled range by range, and pipelines that clients subscribe to."""
