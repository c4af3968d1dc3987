package gate

// NewClsact returns a gate for a kernel without TCX.
func NewClsact(folder string) *Gate {
	g := New(folder)
	g.clsact = true
	return g
}
