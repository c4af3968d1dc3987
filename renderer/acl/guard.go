package acl

import (
	"context"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/expand"
	"github.com/sluice-net/sluice/renderer/acl/internal/layout"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/cache"
)

// A guard is an input ACL of one pod interface. It denies what is certain to be denied: by the
// rules of the sending pod, or by those of pods on this node. The output ACLs decide; the guard
// only keeps packets that they will deny from creating sessions, which would let replies pass and
// fill the session table.
//
// VPP drops the sessions of an interface whose ACL list changes. Therefore every interface has its
// own guard, which is bound once and changes in place.

// prepareGuard decides what the guard of an interface becomes.
func (w *wanted) prepareGuard(n *mirror.Interface) {
	at, t := place{n.Index, guard}, w.layout.Senders[w.ownership.pods[n.Index]]
	w.live[at] = true
	s := w.acls.stacks[at]
	if w.isCurrent(s, t) && !w.inputDiffers {
		return
	}
	p, known := w.guards[t]
	if !known {
		p = w.expand.Guard(t, expand.Guards{Services: w.r.options.Services, Owned: w.r.flows.areOwned(), Sizes: w.r.bounds.guard})
		w.guards[t] = p
	}
	c := &change{n: n, place: at, want: []entries.Piece{p}, digest: digestOfTable(t)}
	if held, ok := s.heldIn(w.m); ok {
		if c.existing = held; held[0].Digest != p.Digest {
			c.steps = []layout.Step{{Piece: p}}
		}
	}
	w.changes = append(w.changes, c)
}

func digestOfTable(t *cache.Table) renderer.Digest {
	if t == nil {
		return renderer.Digest{}
	}
	return t.Digest
}

// lookForServices logs when the vswitch translates addresses but Options.Services is empty: pods
// with a policy for what they send then cannot reach services.
func (r *Renderer) lookForServices(ctx context.Context) error {
	if r.options.Orientation != Outputs || len(r.options.Services) > 0 {
		return nil
	}
	command, err := r.link.Translates(ctx)
	if command != "" {
		r.options.Log.Warn("vpp translates addresses, but no service addresses are configured: pods with an egress policy cannot reach services; set --service-cidr",
			"command", command)
	}
	return err
}
