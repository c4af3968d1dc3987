package mirror

import (
	"slices"

	"github.com/sluice-net/sluice/renderer/vpp"
)

// Made returns the interfaces that sluice-cni made.
func (m *Mirror) Made() (out []vpp.Made) {
	for _, n := range m.Interfaces {
		if n.Made != nil {
			out = append(out, *n.Made)
		}
	}
	return out
}

// SameMade reports whether two interfaces were made for the same pod and addresses.
func SameMade(a, b vpp.Made) bool {
	return a.Tag == b.Tag && a.UID == b.UID && slices.Equal(a.IPs, b.IPs)
}
