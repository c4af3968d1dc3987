package acl

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/cache"
)

// auditRounds is the number of audits in which every ACL is read once.
const auditRounds = 6

func newAudits() audits {
	return audits{drifts: map[string]uint64{mirror.DriftBinding: 0, mirror.DriftContent: 0, mirror.DriftMissing: 0}}
}

// audit runs an audit when it is due. It checks the fill level of the session table, reads the
// lists of all interfaces and some of the ACLs, looks for address translation, and compares the
// result with the mirror. It logs and counts differences, and then makes the Apply check
// everything.
func (r *Renderer) audit(ctx context.Context, plan cache.Plan, fresh bool) (differs bool, err error) {
	if !r.audits.timer.Take() {
		return false, nil
	}
	r.audits.timer.Wait(r.options.Audit, r.link.Prompt)
	if err := r.memory.LookAtSessions(ctx); err != nil {
		return false, err
	}
	if fresh {
		return false, nil // it has just been read
	}
	before := r.mirror.Interfaces
	if err := r.mirror.ReadInterfaces(ctx); err != nil {
		return false, err
	}
	found := r.mirror.Rebound(before)
	rounds := auditRounds
	if len(found) > 0 { // then check everything
		r.audits.contents.Next, rounds = 0, 1
	}
	contents, err := r.audits.contents.Audit(ctx, r.link, r.mirror, rounds)
	if err != nil {
		return false, err
	}
	if found = append(found, contents...); len(found) > 0 {
		r.drifted(found)
		return true, r.read(ctx, r.mirror.Interfaces)
	}
	w := r.want(plan)
	if err := w.checkNATOrder(ctx); err != nil {
		return false, err
	}
	r.interfaces.pending = w.ownership.pending // pending pods need a full check
	return false, r.findForeign(ctx)
}

// Check implements renderer.Checker.
func (r *Renderer) Check(ctx context.Context) (objects int, drift []string, err error) {
	if !r.mu.TryLock() {
		return 0, nil, errors.New("an Apply is running: try again")
	}
	defer r.mu.Unlock()
	return r.mirror.Check(ctx)
}

// findForeign finds the foreign ACLs and logs new ones.
func (r *Renderer) findForeign(ctx context.Context) error {
	var found []renderer.Foreign
	for _, n := range r.mirror.Interfaces {
		// An interface without pods is an uplink, unless it is blocked. Packets that enter by an
		// uplink are those that pods receive.
		pods, enters := r.interfaces.owned[n.Index], api.Egress
		if len(pods) == 0 && !slices.Contains(r.interfaces.blocked, n.Name) {
			enters = api.Ingress
		}
		for _, f := range r.mirror.ForeignAt(n, pods, enters) {
			if at := slices.IndexFunc(r.audits.foreign, f.IsSame); at >= 0 {
				f.Tag = r.audits.foreign[at].Tag
			} else if err := describeForeign(ctx, r.link, r.options.Log, &f); err != nil {
				return err
			}
			found = append(found, f.Foreign)
		}
	}
	r.audits.foreign = found
	return nil
}

// describeForeign reads the tag of a new foreign ACL and logs it.
func describeForeign(ctx context.Context, link *mirror.Link, log *slog.Logger, f *mirror.ForeignACL) error {
	is, err := link.ReadACLs(ctx, f.Index)
	if err != nil {
		return err
	}
	if len(is) > 0 {
		f.Tag = is[0].Tag
	}
	log.Warn("found an acl of another owner on an interface with policy", "interface", f.At, "pods", f.Pods, "direction", f.Direction, "acl", f.Index, "tag", f.Tag, "place", f.Place)
	return nil
}
