"""What goes over gRPC: messages from the `.proto` files beside this, made by `scripts/protos`."""
