"""What runs or times a program: the interpreter, the simulator, reports and traces."""
