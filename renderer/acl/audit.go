package acl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/layout"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/cache"
)

const (
	// defaultAudit is how often bindings are read.
	defaultAudit = 10 * time.Second
	// auditRounds is in how many audits every ACL is read once.
	auditRounds = 6
)

// The kinds of what an audit finds.
const (
	driftBinding = "binding" // an interface has other ACLs of ours, or in another order
	driftContent = "content" // an ACL has other entries, or another tag
	driftMissing = "missing" // an ACL is gone
)

// drift is what somebody else has changed of ours in the vswitch.
type drift struct{ kind, what string }

func (d drift) String() string { return d.what }

func bindingDrifts(found []string) (out []drift) {
	for _, what := range found {
		out = append(out, drift{driftBinding, what})
	}
	return out
}

// audit looks, when it is the time, at the table of sessions, reads what interfaces have, some of
// the ACLs, and where addresses are translated, and compares that with the mirror. What differs is
// logged and counted, and a reason to look at everything.
func (r *Renderer) audit(ctx context.Context, plan cache.Plan, fresh bool) (differs bool, err error) {
	if !r.auditing.Take() {
		return false, nil
	}
	r.auditing.Wait(r.options.Audit, r.link.Prompt)
	if err := r.memory.LookAtSessions(ctx); err != nil {
		return false, err
	}
	if fresh {
		return false, nil // it was just read
	}
	before := r.mirror.Interfaces
	if err := r.mirror.ReadInterfaces(ctx); err != nil {
		return false, err
	}
	found := bindingDrifts(r.mirror.Rebound(before))
	rounds := auditRounds
	if len(found) > 0 { // then look at everything
		r.nextACL, rounds = 0, 1
	}
	contents, err := r.auditACLs(ctx, rounds)
	if err != nil {
		return false, err
	}
	if found = append(found, contents...); len(found) > 0 {
		r.drifted(found)
		return true, r.read(ctx, r.mirror.Interfaces)
	}
	w := r.want(plan)
	if err := w.checkLayout(ctx); err != nil {
		return false, err
	}
	r.pending = w.who.pending // who waits has everything looked at
	return false, r.findForeign(ctx)
}

// readInterfaces brings interfaces and what is bound to them up to date, between audits.
func (r *Renderer) readInterfaces(ctx context.Context) error {
	before := r.mirror.Interfaces
	if err := r.mirror.ReadInterfaces(ctx); err != nil {
		return err
	}
	r.drifted(bindingDrifts(r.mirror.Rebound(before)))
	return nil
}

// drifted logs, counts and publishes what differs. The Commit that found it repairs it.
func (r *Renderer) drifted(found []drift) {
	if len(found) == 0 {
		return
	}
	counts := maps.Clone(r.drifts)
	for _, d := range found {
		counts[d.kind]++
		r.log.Warn("somebody has changed rules in the vswitch; they are repaired", "kind", d.kind, "what", d.what)
	}
	r.drifts = counts
	r.publish(fmt.Errorf("%w: %s", errDrift, renderer.Summary(found)))
}

var errDrift = errors.New("somebody has changed rules in the vswitch")

// auditACLs reads the next of our ACLs, all in a number of rounds. Each has a call of its own, so
// that no call is a long one.
func (r *Renderer) auditACLs(ctx context.Context, rounds int) (found []drift, err error) {
	all := slices.Sorted(maps.Keys(r.mirror.ACLs))
	at, _ := slices.BinarySearch(all, r.nextACL)
	next := all[at:min(at+layout.Ceil(len(all), rounds), len(all))]
	r.nextACL = 0
	if end := at + len(next); end < len(all) {
		r.nextACL = all[end]
	}
	for _, index := range next {
		h := r.mirror.ACLs[index]
		is, err := r.link.ReadACLs(ctx, index)
		switch {
		case err != nil:
			return nil, err
		case len(is) == 0:
			found = append(found, drift{driftMissing, fmt.Sprintf("acl %d %s is gone", index, h.Tag)})
		case is[0].Tag != h.Tag:
			found = append(found, drift{driftContent, fmt.Sprintf("acl %d has the tag %q instead of %s", index, is[0].Tag, h.Tag)})
		case entries.DigestOf(mirror.FromRules(is[0].R)) != h.Piece.Digest:
			found = append(found, drift{driftContent, fmt.Sprintf("acl %d %s has other entries (%d)", index, h.Tag, len(is[0].R))})
		}
	}
	return found, nil
}

// findForeign finds ACLs of others on interfaces that have ours, and logs those that are new.
func (r *Renderer) findForeign(ctx context.Context) error {
	var found []renderer.Foreign
	for _, n := range r.mirror.Interfaces {
		// An interface without pods is an uplink, unless it is closed: there what enters is what
		// pods get.
		pods, enters := r.owned[n.Index], api.Egress
		if len(pods) == 0 && !slices.Contains(r.held, n.Name) {
			enters = api.Ingress
		}
		for _, f := range r.mirror.ForeignAt(n, pods, enters) {
			if at := slices.IndexFunc(r.foreign, f.IsSame); at >= 0 {
				f.Tag = r.foreign[at].Tag
			} else if err := r.meet(ctx, &f); err != nil {
				return err
			}
			found = append(found, f.Foreign)
		}
	}
	r.foreign = found
	return nil
}

// meet reads the tag of an ACL of somebody else that is new, and logs it.
func (r *Renderer) meet(ctx context.Context, f *mirror.ForeignACL) error {
	is, err := r.link.ReadACLs(ctx, f.Index)
	if err != nil {
		return err
	}
	if len(is) > 0 {
		f.Tag = is[0].Tag
	}
	r.log.Warn("an interface with policy has an ACL of somebody else", "interface", f.At, "pods", f.Pods, "direction", f.Direction, "acl", f.Index, "tag", f.Tag, "place", f.Place)
	return nil
}
