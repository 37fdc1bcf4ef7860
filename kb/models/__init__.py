"""File formats (Pydantic: entry, campaign, target) and values that pass between layers (dataclasses: facts, hit)."""
