"""The isolated runtime of the judge: standard library, numpy and torch only, nothing else of kb but operators."""
