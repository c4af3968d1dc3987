package node

import (
	"log/slog"
	"testing"

	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/xdp"
)

// closing is a plane that counts how often it is closed.
type closing struct {
	xdp.Dataplane
	closed int
}

func (c *closing) Close() error {
	c.closed++
	return c.Dataplane.Close()
}

// TestNewReleasesKernelAfterError has the renderer beside that of the kernel refuse its
// options.
func TestNewReleasesKernelAfterError(t *testing.T) {
	refused := acl.Options{Orientation: acl.Split, Flows: acl.Flows{Established: acl.Revoke}}
	for name, other := range map[string]Backend{"an embedded dataplane": &Vswitch{Options: refused}, "a VPP": &VPP{Options: refused}} {
		k := NewHeap()
		plane := &closing{Dataplane: k.Options.Dataplane}
		k.Options.Dataplane = plane
		_, err := New(Config{Name: "node-1", Log: slog.New(slog.DiscardHandler), Backends: []Backend{k, other}})
		if err == nil || plane.closed != 1 {
			t.Errorf("%s: %v, and the plane was closed %d times, want once", name, err, plane.closed)
		}
	}
}
