"""What quantization and pruning share: metrics, and the search for the cheapest net that keeps one.

measures.py  what says how good a net is: accuracy, perplexity, and the distance from the original's outputs
masks.py     masks that keep n of m neighbours
walk.py      from the unchanged net to the smallest one, step by step: first what costs the metric least
front.py     the points of a search with their modelled cost, and the Pareto front of these
"""
