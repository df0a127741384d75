"""Rules for ONNX ops, a module for each class of them; `table.py` has the table that they are in."""
