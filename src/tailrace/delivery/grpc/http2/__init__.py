"""gRPC over HTTP/2: connections, streams and messages, without knowing any service."""
