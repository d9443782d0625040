"""Tables of experiments: like the paper's, and the questions that it asks of them."""
