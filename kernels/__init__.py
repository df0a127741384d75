"""What a kernel does and how it is placed, mostly without IR: stages as data, their text, their bytes on chip, and what
builds tile kernels of them. Dialects and machine only; the passes make stages of fusions and choose among plans."""
