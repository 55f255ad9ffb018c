"""The metadata database: state that must survive, through SQLAlchemy Core."""
