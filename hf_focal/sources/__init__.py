"""What gives scores: a trained model, an ONNX file, a language model that scores options."""
