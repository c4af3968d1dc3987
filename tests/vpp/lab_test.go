package vpp

import (
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/node"
)

// lab is one node twice: with a VPP of its own, and embedded.
type lab struct {
	*plumbing
	real, twin *node.Node
	revision   int64
	asked      uint16 // how often judge was
}

// newLab starts both halves on a VPP. The real half ends with the test, or earlier
// when another one is wanted on the same VPP.
func newLab(p *plumbing, name string) *lab {
	p.tb.Helper()
	return newLabWith(p, node.Config{Name: name})
}

// newLabWith is newLab with settings, for both halves.
func newLabWith(p *plumbing, cfg node.Config) *lab {
	p.tb.Helper()
	l := &lab{plumbing: p, twin: startNode(p.tb, cfg)}
	cfg.VPPSocket = p.socket()
	l.real = startNode(p.tb, cfg)
	return l
}

// startNode starts a node that ends with the test.
func startNode(tb testing.TB, cfg node.Config) *node.Node {
	tb.Helper()
	cfg.AllowNode, cfg.Log = true, slog.New(slog.DiscardHandler)
	n, err := node.New(cfg)
	if err == nil {
		err = n.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { closing(tb, n) })
	return n
}

// closing closes a node; it may be closed already.
func closing(tb testing.TB, n *node.Node) {
	if err := n.Close(); err != nil {
		tb.Error(err)
	}
}

// apply returns when both halves enforce the changes, and VPP has the interfaces and
// routes of the embedded dataplane.
func (l *lab) apply(c model.Changes) {
	l.tb.Helper()
	ctx, cancel := bounded(l.tb)
	defer cancel()
	l.revision++
	c.Revision = l.revision
	if err := l.twin.Apply(ctx, c); err != nil {
		l.tb.Fatal(err)
	}
	l.grow(l.twin.Switch)
	if err := l.real.Apply(ctx, c); err != nil {
		l.tb.Fatal(err)
	}
	if err := l.real.WaitEnforced(ctx, l.revision); err != nil {
		l.tb.Fatal(err)
	}
	l.shrink(l.twin.Switch)
}

// compare says where the two dataplanes differ.
func (l *lab) compare(tb testing.TB) contents {
	tb.Helper()
	want, got := embedded(tb, l.twin.Switch), contentsOf(tb, l.conn)
	if d := cmp.Diff(want, got); d != "" {
		tb.Errorf("(-embedded +vpp):\n%s", d)
	}
	return got
}
