"""Store arrays, a header and nested containers of both in a safetensors file, without pickle."""
