"""Word vectors learned from text: skip-gram and CBOW (word2vec), and GloVe."""
