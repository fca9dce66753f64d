"""Forms of layers and losses that GPUs (and CPUs) are quick at, behind the signatures of the plain ones."""
