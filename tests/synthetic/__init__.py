"""Synthetic exports with known answers, reproducible from their arguments.

folder, known = generate(Path("exports"), Shape(messages=2_000))
known["queues"]
"""

from tests.synthetic.generating import generate
from tests.synthetic.parameters import Shape

__all__ = ["Shape", "generate"]
