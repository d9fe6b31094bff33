"""Export to and import from other toolkits, with comparisons of the outputs."""
