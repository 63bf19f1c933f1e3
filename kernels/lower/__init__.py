"""From a plan to loop programs."""

from .errors import LoweringError
from .lower import lower

__all__ = ["LoweringError", "lower"]
