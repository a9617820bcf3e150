"""What a model does on every sequence: proofs for one layer, and attacks on any model."""

from ihlab.certify.certificate import Certificate
from ihlab.certify.certify import certify
from ihlab.certify.check import check

__all__ = ["Certificate", "certify", "check"]
