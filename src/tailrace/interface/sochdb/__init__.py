"""The interface of SochDB: streams of changes, keys and values over gRPC, and the WebSocket gateway."""
