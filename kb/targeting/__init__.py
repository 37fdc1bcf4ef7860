"""Targets made from what is known of a model: its config, the traffic, and what a roofline says of each operator.

Pure functions; costs of operators come in from outside, because their specs need torch.
"""
