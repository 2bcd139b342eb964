"""Probes that show what a device does, for the command ``npugraph-strategies selftest``. They import no torch_npu."""
