"""What tests of all folders share."""

from importlib.metadata import version

# Compiling takes longer than running here: let XLA optimise less. JAX 0.10 keeps its new emitters,
# as its old ones make some slopes wrong at this level.
XLA_FLAGS = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    + " --xla_cpu_parallel_codegen_split_count=1" * version("jax").startswith("0.10.")
)
