"""The explorer: what trained models attend to and how they search, as one page that needs no network."""
