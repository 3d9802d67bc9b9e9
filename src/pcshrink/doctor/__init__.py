"""What this machine and this installation can do: versions, processor, runtimes, disk, missing packages."""
