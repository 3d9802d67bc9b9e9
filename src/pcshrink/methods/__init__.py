"""The methods that choose which channels go: Progressive Channel-Shrinking, its ablations, rivals and controls."""
