"""The nouns of Tailrace. Imports nothing else of ours; see docs/glossary.md for the words."""
