"""The PostgreSQL source: captures by logical replication with pgoutput."""
