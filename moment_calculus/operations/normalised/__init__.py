"""Operations that normalise features: softmax, layer normalisation."""
