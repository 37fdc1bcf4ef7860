"""Latency on the target, predicted from latencies elsewhere, with a 90 % interval; docs/prediction.md.

Pure functions of the measurements, the hardware table and a file of constants. Standard library only.
"""

from kb.prediction.measurements import Measurements
from kb.prediction.predicting import predict, speed_up, split_axes
from kb.prediction.values import CASES, Ask, Flagged, Prediction, Sample, SpeedUp, Work

__all__ = [
    "CASES",
    "Ask",
    "Flagged",
    "Measurements",
    "Prediction",
    "Sample",
    "SpeedUp",
    "Work",
    "predict",
    "speed_up",
    "split_axes",
]
