"""CIFAR-10: fetched, read from any of its forms, checked byte by byte, kept as one file.

``prepare`` finds or fetches an archive, ``read`` decodes it (``unpickle`` where it is the Python one), and ``stored``
checks the content, keeps it as one file and loads it again.
"""
