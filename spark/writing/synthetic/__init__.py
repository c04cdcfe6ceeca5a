"""Synthetic exports with known answers: of any size, always the same for the same arguments, damaged on demand.

    folder = generate(Path("exports"), Shape(messages=200_000, defects=frozenset({Defect.HOLE})))
    answers(folder)["queues"]

Memory does not grow with the size. A larger export of the same seed begins with the messages of a smaller one, so one
with `since` is what an incremental export after the smaller one would be.
"""

from spark.writing.synthetic.generating import answers, generate
from spark.writing.synthetic.parameters import Defect, Shape

__all__ = ["Defect", "Shape", "answers", "generate"]
