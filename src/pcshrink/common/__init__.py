"""What several packages share and that knows nothing of networks."""
