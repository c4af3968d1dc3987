package acl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/acl/internal/pauses"
	"github.com/sluice-net/sluice/renderer/cache"
)

const (
	// defaultAudit is the default interval between audits.
	defaultAudit = 10 * time.Second
	// auditRounds is the number of audits in which every ACL is read once.
	auditRounds = 6
)

// audits compare the content of the vswitch with what was installed.
type audits struct {
	timer    pauses.Timer
	contents mirror.ContentAudit
	drifts   map[string]uint64 // foreign changes that were found, by kind; replaced, never modified
	foreign  foreignACLs
}

func newAudits() audits {
	return audits{drifts: map[string]uint64{mirror.DriftBinding: 0, mirror.DriftContent: 0, mirror.DriftMissing: 0}}
}

// audit runs an audit when it is due. It checks the fill level of the session table, reads the
// lists of all interfaces and some of the ACLs, looks for address translation, and compares the
// result with the mirror. It logs and counts differences, and then makes the Commit check
// everything.
func (r *Renderer) audit(ctx context.Context, plan cache.Plan, fresh bool) (differs bool, err error) {
	if !r.audits.timer.Take() {
		return false, nil
	}
	r.audits.timer.Wait(r.options.Pacing.Audit, r.link.Prompt)
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
	return false, r.audits.foreign.find(ctx, r)
}

// readInterfaces refreshes the interfaces and their ACL lists between audits.
func (r *Renderer) readInterfaces(ctx context.Context) error {
	before := r.mirror.Interfaces
	if err := r.mirror.ReadInterfaces(ctx); err != nil {
		return err
	}
	r.drifted(r.mirror.Rebound(before))
	return nil
}

// Check implements renderer.Checker.
func (r *Renderer) Check(ctx context.Context) (objects int, drift []string, err error) {
	if !r.mu.TryLock() {
		return 0, nil, errors.New("a commit is running: try again")
	}
	defer r.mu.Unlock()
	return r.mirror.Check(ctx)
}

// drifted logs, counts and publishes differences. The Commit that found them repairs them.
func (r *Renderer) drifted(found []mirror.Drift) {
	if len(found) == 0 {
		return
	}
	counts := maps.Clone(r.audits.drifts)
	for _, d := range found {
		counts[d.Kind]++
		r.options.Log.Warn("rules in the vswitch were changed by another program; repairing them", "kind", d.Kind, "what", d.What)
	}
	r.audits.drifts = counts
	r.publish(fmt.Errorf("%w: %s", errDrift, renderer.Summary(found)))
}

var errDrift = errors.New("rules in the vswitch were changed by another program")

// foreignACLs are the ACLs of other owners on interfaces that have ours.
type foreignACLs struct {
	all []renderer.Foreign // replaced, never modified
}

// find finds the foreign ACLs and logs new ones.
func (x *foreignACLs) find(ctx context.Context, r *Renderer) error {
	var found []renderer.Foreign
	for _, n := range r.mirror.Interfaces {
		// An interface without pods is an uplink, unless it is blocked. Packets that enter by an
		// uplink are those that pods receive.
		pods, enters := r.interfaces.owned[n.Index], api.Egress
		if len(pods) == 0 && !slices.Contains(r.interfaces.blocked, n.Name) {
			enters = api.Ingress
		}
		for _, f := range r.mirror.ForeignAt(n, pods, enters) {
			if at := slices.IndexFunc(x.all, f.IsSame); at >= 0 {
				f.Tag = x.all[at].Tag
			} else if err := describeForeign(ctx, r.link, r.options.Log, &f); err != nil {
				return err
			}
			found = append(found, f.Foreign)
		}
	}
	x.all = found
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
