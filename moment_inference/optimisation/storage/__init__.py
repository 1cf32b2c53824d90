"""Store nested containers and arrays in a safetensors file, without pickle."""
