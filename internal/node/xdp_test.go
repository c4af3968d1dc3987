package node

import (
	"log/slog"
	"testing"

	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/xdp"
)

// closing is a plane that counts how often it is closed.
type closing struct {
	xdp.Plane
	closed int
}

func (c *closing) Close() error {
	c.closed++
	return c.Plane.Close()
}

// TestANodeThatCannotBeMadeLetsGoOfTheKernel has the renderer beside that of the kernel refuse its options.
func TestANodeThatCannotBeMadeLetsGoOfTheKernel(t *testing.T) {
	for _, socket := range []string{"", "/nowhere/vpp.sock"} { // over the embedded dataplane, and over VPP
		x := HeapXDP()
		plane := &closing{Plane: x.Options.Plane}
		x.Only, x.Options.Plane = false, plane
		_, err := New(Config{Name: "node-1", Log: slog.New(slog.DiscardHandler), VPPSocket: socket, XDP: x, Orientation: acl.Split, Established: acl.Revoke})
		if err == nil || plane.closed != 1 {
			t.Errorf("socket %q: %v, and the plane was closed %d times, want once", socket, err, plane.closed)
		}
	}
}
