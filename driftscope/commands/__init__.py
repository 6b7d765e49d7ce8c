"""The commands of `driftscope`, one file each. None imports torch before it has to."""
