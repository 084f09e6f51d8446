"""The course's import names over our own code; nothing is implemented here."""
