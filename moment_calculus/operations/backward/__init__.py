"""Values whose covariances were computed backwards, for likelihoods and predictions."""
