"""The file ``correction.json``, and what is made with it: files of corrected scores, and ONNX graphs."""
