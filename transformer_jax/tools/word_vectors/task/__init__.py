"""The task that learns word vectors: skip-gram and CBOW (word2vec), and GloVe."""
