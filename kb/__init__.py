"""kernel-kb: verified GPU kernels, allocation strategies and communication schemes, searchable."""

__version__ = "0.1.0"
