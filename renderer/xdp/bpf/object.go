package bpf

// Object returns the object that was compiled from src. The caller must not modify it. It changes
// whenever programs or the layout of maps change.
func Object() []byte { return _SluiceBytes }
