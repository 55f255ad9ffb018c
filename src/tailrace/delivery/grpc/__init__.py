"""The gRPC interface."""
