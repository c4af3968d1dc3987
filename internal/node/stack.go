package node

import "github.com/sluice-net/sluice/renderer"

// Renderers returns those that enforce on this node, the one of its main dataplane first.
func (n *Node) Renderers() []renderer.Renderer { return n.Plugin.Renderers }

// States returns what the dataplanes enforce, in the order of Renderers, of those that say it.
// It waits for no commit.
func (n *Node) States() (out []*renderer.State) {
	for _, r := range n.Renderers() {
		if i, ok := renderer.As[renderer.Inspector](r); ok {
			out = append(out, i.State())
		}
	}
	return out
}

// Counters is States with what rules decided, where the dataplane counts.
func (n *Node) Counters() (out []*renderer.State) {
	for _, r := range n.Renderers() {
		if c, ok := renderer.As[renderer.Counter](r); ok {
			out = append(out, c.Counters())
		} else if i, ok := renderer.As[renderer.Inspector](r); ok {
			out = append(out, i.State())
		}
	}
	return out
}

// Decisions returns what rules of policies decided, by the names of renderers whose dataplane
// counts.
func (n *Node) Decisions() map[string]map[renderer.Decided]uint64 {
	out := map[string]map[renderer.Decided]uint64{}
	for _, r := range n.Renderers() {
		if c, ok := renderer.As[renderer.Counter](r); ok {
			if d := c.Decisions(); d != nil {
				out[r.Name()] = d
			}
		}
	}
	return out
}

// InterfacesChanged has renderers look for the interfaces of pods again.
func (n *Node) InterfacesChanged() {
	for _, r := range n.Renderers() {
		if x, ok := renderer.As[interface{ InterfacesChanged() }](r); ok {
			x.InterfacesChanged()
		}
	}
	n.Plugin.Prompt() // others look in every commit
}
