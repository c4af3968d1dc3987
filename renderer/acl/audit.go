package acl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/renderer"
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

// audit reads, when it is the time, what interfaces have and some of the ACLs, and compares that
// with the mirror. What differs is logged and counted, and a reason to look at everything.
func (r *Renderer) audit(ctx context.Context, fresh bool) (differs bool, err error) {
	if !r.auditing.take() {
		return false, nil
	}
	r.auditing.wait(r.options.Audit, r.link.Prompt)
	if fresh {
		return false, nil // it was just read
	}
	before := r.mirror.ifs
	if err := r.mirror.readInterfaces(ctx, r.link); err != nil {
		return false, err
	}
	found := r.mirror.rebound(before)
	rounds := auditRounds
	if len(found) > 0 { // then look at everything
		r.nextACL, rounds = 0, 1
	}
	contents, err := r.auditACLs(ctx, rounds)
	if err != nil {
		return false, err
	}
	if found = append(found, contents...); len(found) == 0 {
		return false, nil
	}
	r.count(found)
	r.publish(fmt.Errorf("%w: %s", errDrift, renderer.Summary(found)))
	return true, r.read(ctx, r.mirror.ifs)
}

// count logs and counts what differs.
func (r *Renderer) count(found []drift) {
	counts := maps.Clone(r.drifts)
	for _, d := range found {
		counts[d.kind]++
		r.log.Warn("somebody has changed rules in the vswitch; they are repaired", "kind", d.kind, "what", d.what)
	}
	r.drifts = counts
}

var errDrift = errors.New("somebody has changed rules in the vswitch")

// rebound returns which interfaces have lost ACLs of ours, or have them otherwise, since they were
// read or bound before.
func (m *mirror) rebound(before []*netif) (found []drift) {
	old := make(map[uint32]*netif, len(before))
	for _, n := range before {
		old[n.index] = n
	}
	for _, n := range m.ifs {
		was := old[n.index]
		if was == nil || was.name != n.name || was.tag != n.tag {
			continue
		}
		expected, has := lists{m.own(was.bound.in), m.own(was.bound.out)}, lists{m.own(n.bound.in), m.own(n.bound.out)}
		if !expected.equal(has) {
			found = append(found, drift{driftBinding, fmt.Sprintf("interface %s has input %v and output %v of ours instead of %v and %v",
				n.name, has.in, has.out, expected.in, expected.out)})
		}
	}
	return found
}

// auditACLs reads the next of our ACLs, all in a number of rounds. Each has a call of its own, so that
// no call is a long one.
func (r *Renderer) auditACLs(ctx context.Context, rounds int) (found []drift, err error) {
	all := slices.Sorted(maps.Keys(r.mirror.acls))
	at, _ := slices.BinarySearch(all, r.nextACL)
	next := all[at:min(at+ceil(len(all), rounds), len(all))]
	r.nextACL = 0
	if end := at + len(next); end < len(all) {
		r.nextACL = all[end]
	}
	for _, index := range next {
		h := r.mirror.acls[index]
		is, err := r.link.readACLs(ctx, index)
		switch {
		case err != nil:
			return nil, err
		case len(is) == 0:
			found = append(found, drift{driftMissing, fmt.Sprintf("acl %d %s is gone", index, h.tag)})
		case is[0].Tag != h.tag:
			found = append(found, drift{driftContent, fmt.Sprintf("acl %d has the tag %q instead of %s", index, is[0].Tag, h.tag)})
		case digestOf(fromRules(is[0].R)) != h.piece.digest:
			found = append(found, drift{driftContent, fmt.Sprintf("acl %d %s has other entries (%d)", index, h.tag, len(is[0].R))})
		}
	}
	return found, nil
}

// logForeign logs ACLs of others on interfaces that have ours, once for each place. What stands in
// front decides first.
func (r *Renderer) logForeign(ctx context.Context, w *wanted) error {
	seen := map[string]bool{}
	for _, n := range w.m.ifs {
		ours := w.ours(n)
		for _, x := range []struct {
			direction          string
			bound, behind, own []uint32
		}{{"input", n.bound.in, n.behind.in, ours.in}, {"output", n.bound.out, n.behind.out, ours.out}} {
			for _, index := range x.bound {
				if w.m.acls[index] != nil || len(x.own) == 0 {
					continue
				}
				place := "in front of ours, it decides first"
				if slices.Contains(x.behind, index) {
					place = "behind ours, it decides what ours leave open"
				}
				key := fmt.Sprint(n.name, n.index, x.direction, index, place)
				if seen[key] = true; r.foreign[key] {
					continue
				}
				is, err := r.link.readACLs(ctx, index)
				if err != nil {
					return err
				}
				tag := ""
				if len(is) > 0 {
					tag = is[0].Tag
				}
				r.log.Warn("an interface with policy has an ACL of somebody else", "interface", n.name, "direction", x.direction,
					"acl", index, "tag", tag, "place", place)
			}
		}
	}
	r.foreign = seen
	return nil
}
