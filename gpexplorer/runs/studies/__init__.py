"""Studies made of several runs: sweeps, races, comparisons, scaling measurements, and the workers they run on."""
