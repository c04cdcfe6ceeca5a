"""For programs that use Decant. Imports nothing but the standard library, so that it can be copied into them."""
