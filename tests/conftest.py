"""Before anything imports torch."""

import os

# Some virtual machines announce AMX but cannot run it, and any bfloat16 product ends the process there.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# Several test processes with several threads each would spend their time waiting for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")
