"""What a model does on every sequence: proofs for one layer, and attacks on any model."""

from ihlab.certify.attack import Attack, attack
from ihlab.certify.certificate import Certificate
from ihlab.certify.certify import certify

__all__ = ["Attack", "Certificate", "attack", "certify"]
