package node

import "github.com/sluice-net/sluice/renderer"

// Beside is a renderer that the caller owns and closes.
type Beside struct{ To renderer.Renderer }

// Open implements Backend.
func (Beside) Open(Host) error { return nil }

// Renderer implements Backend.
func (b Beside) Renderer() renderer.Renderer { return b.To }

// Close implements Backend.
func (Beside) Close() error { return nil }
