"""From what a network may cost to how wide its groups may be."""
