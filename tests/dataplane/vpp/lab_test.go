package vpp

import (
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// lab is one node twice: with a VPP of its own, and embedded.
type lab struct {
	*vpptest.Network
	tb         testing.TB
	real, twin half
	revision   int64
	asked      uint16 // how often judge was
}

// half is a node, and what its dataplane is: one of VPP and Switch is there.
type half struct {
	*node.Node
	ACL    *acl.Renderer
	Switch *vswitch.Switch // nil with a VPP
}

// newLab starts both halves on a VPP. The real half ends with the test, or earlier
// when another one is wanted on the same VPP.
func newLab(tb testing.TB, p *vpptest.Network, name string) *lab {
	tb.Helper()
	return newLabWith(tb, p, name, acl.Options{})
}

// newLabWith is newLab with settings, for both halves.
func newLabWith(tb testing.TB, p *vpptest.Network, name string, o acl.Options) *lab {
	tb.Helper()
	l := &lab{Network: p, tb: tb, twin: startNode(tb, name, o)}
	o.Socket = p.Socket()
	l.real = startNode(tb, name, o)
	return l
}

// startNode starts a node that ends with the test, on the VPP at a socket or embedded.
func startNode(tb testing.TB, name string, o acl.Options) half {
	tb.Helper()
	vpp, embedded := &node.VPP{Options: o}, &node.Vswitch{Options: o}
	cfg := node.Config{Name: name, AllowNode: true, Log: slog.New(slog.DiscardHandler), Backends: []node.Backend{embedded}}
	if o.Socket != "" {
		cfg.Backends = []node.Backend{vpp}
	}
	n, err := node.New(cfg)
	if err == nil {
		err = n.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { closing(tb, half{Node: n}) })
	if o.Socket != "" {
		return half{Node: n, ACL: vpp.ACL}
	}
	return half{n, embedded.ACL, embedded.Switch}
}

// closing closes a node; it may be closed already.
func closing(tb testing.TB, n half) {
	if err := n.Close(); err != nil {
		tb.Error(err)
	}
}

// apply returns when both halves enforce the changes, and VPP has the interfaces and
// routes of the embedded dataplane.
func (l *lab) apply(c model.Changes) {
	l.tb.Helper()
	ctx, cancel := vpptest.Bounded(l.tb)
	defer cancel()
	l.revision++
	c.Revision = l.revision
	if err := l.twin.Apply(ctx, c); err != nil {
		l.tb.Fatal(err)
	}
	l.Grow(l.twin.Switch)
	if err := l.real.Apply(ctx, c); err != nil {
		l.tb.Fatal(err)
	}
	if err := l.real.WaitEnforced(ctx, l.revision); err != nil {
		l.tb.Fatal(err)
	}
	l.Shrink(l.twin.Switch)
}

// compare says where the two dataplanes differ.
func (l *lab) compare(tb testing.TB) contents {
	tb.Helper()
	want, got := embedded(tb, l.twin.Switch), contentsOf(tb, l.Conn)
	if d := cmp.Diff(want, got); d != "" {
		tb.Errorf("(-embedded +vpp):\n%s", d)
	}
	return got
}
