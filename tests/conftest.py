"""Before anything imports torch."""

import os

# Some virtual machines announce AMX but cannot run it, and any bfloat16 product ends the process there.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
