"""The runtimes a model can be run in: eager, compiled, onnxruntime and OpenVINO."""
