"""Ways of mixing in earlier tokens that work with any attention: convolutions, smear, shifts of
inputs.
"""
