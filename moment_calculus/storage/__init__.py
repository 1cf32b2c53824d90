"""Arrays, a header and trees of both in one safetensors file, without pickle."""
