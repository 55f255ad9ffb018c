"""The interface of SkeinDB: calls, server-sent events and WebSockets, prepared queries."""
