package bpf

// Object returns what was compiled from src, which is not to be changed. It is another one whenever
// programs, or what they take memory for, are.
func Object() []byte { return _SluiceBytes }
