"""Test a model on all sequences of a task, not only on a sample: proofs for one layer, attacks on
any model.
"""

from ihlab.certify.attack import Attack, attack
from ihlab.certify.certificate import Certificate
from ihlab.certify.certify import certify
from ihlab.certify.check import check
from ihlab.certify.circuit import certify_circuit
from ihlab.certify.parts import parts_of
from ihlab.certify.sequences import Sequences
from ihlab.certify.teach import train_until_proved

__all__ = [
    "Attack",
    "Certificate",
    "Sequences",
    "attack",
    "certify",
    "certify_circuit",
    "check",
    "parts_of",
    "train_until_proved",
]
