"""What a model does on every sequence, not on the ones that were drawn: search for the worst ones."""

from ihlab.certify.attack import Attack as Attack
from ihlab.certify.attack import attack as attack
