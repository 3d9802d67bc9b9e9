"""From a pretrained network and a folder of images to a smaller, proven, exported and timed one."""
