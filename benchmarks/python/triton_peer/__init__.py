"""A Triton server with PyTorch's attention, as a peer of attention-server."""
