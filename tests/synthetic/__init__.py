"""Synthetic exports with known answers: of any size, reproducible from their arguments, with defects on demand.

    folder = generate(Path("exports"), Shape(messages=200_000, defects=frozenset({Defect.HOLE})))
    answers(folder)["queues"]

Memory does not grow with the size. A larger export of the same seed begins with the messages of a smaller one. So with
`since`, it is the incremental export that would follow the smaller one.
"""

from tests.synthetic.generating import answers, generate
from tests.synthetic.parameters import Defect, Shape

__all__ = ["Defect", "Shape", "answers", "generate"]
