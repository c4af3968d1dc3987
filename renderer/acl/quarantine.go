package acl

import (
	"context"
	"errors"
	"maps"

	"github.com/sluice-net/sluice/renderer/cache"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// Quarantine implements renderer.Quarantiner. It blocks nothing without Pods.BlockUnknown.
func (r *Renderer) Quarantine(ctx context.Context) (holdsRules bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.quarantined.committed {
		return true, nil
	}
	ctx, done := r.link.Calls(ctx)
	defer done()
	holdsRules, err = r.quarantine(ctx)
	err = vpp.Ended(ctx, err)
	r.publish(err)
	return holdsRules, err
}

// quarantine reads the interfaces each time, and makes the next Apply read them again.
func (r *Renderer) quarantine(ctx context.Context) (holdsRules bool, err error) {
	if r.audits.timer.Take() { // time to look for late tags
		r.audits.timer.Wait(r.options.Audit, r.link.Prompt)
	}
	r.interfacesChanged.Store(true)
	defer r.interfacesChanged.Store(true)
	if _, err := r.connect(ctx); err != nil {
		return false, r.fail(err)
	}
	w := r.want(cache.Plan{})
	holdsRules = r.mirror.HoldsBeside(closedACL) // then an earlier run has committed to this vswitch
	r.quarantined.spare(w, holdsRules)
	if err := w.quarantine(ctx); err != nil {
		return holdsRules, r.fail(err)
	}
	r.interfaces.noteBlocked(w)
	return holdsRules, errors.Join(w.refusals.errs...)
}

// spare exempts from blocking the interfaces that existed when rules of an earlier run were found
// in the vswitch.
func (q *quarantined) spare(w *wanted, holdsRules bool) {
	first := holdsRules && q.spared == nil
	there := make(map[uint32]string)
	for _, n := range w.m.Interfaces {
		if w.ownership.blocked[n.Index] && (first || q.spared[n.Index] == n.Name) {
			there[n.Index] = n.Name
		}
	}
	if q.spared = nil; holdsRules {
		q.spared = there
		maps.DeleteFunc(w.ownership.blocked, func(index uint32, _ bool) bool { return there[index] != "" })
	}
}

// quarantine binds the ACL that denies everything to the blocked interfaces, and changes nothing else.
func (w *wanted) quarantine(ctx context.Context) error {
	if len(w.ownership.blocked) == 0 {
		return nil
	}
	w.block()
	if err := w.changeShared(ctx); err != nil {
		return err
	}
	for _, n := range w.m.Interfaces {
		if !w.ownership.blocked[n.Index] {
			continue
		}
		if err := w.bindInterface(ctx, n); err != nil {
			return err
		}
	}
	return nil
}
