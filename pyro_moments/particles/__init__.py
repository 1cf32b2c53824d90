"""Programs whose latent sites are drawn: each as late as it can be, and where it is cheapest."""
