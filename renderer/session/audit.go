package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// driftRule is the kind of what an audit finds: a rule that is gone, says something else, or came.
const driftRule = "rule"

var errDrift = errors.New("somebody has changed session rules in the vswitch")

// audit reads, when it is the time, the namespaces and rules that there are, and compares them with
// the mirror. What differs is logged and counted, and a reason to look at everything.
func (r *Renderer) audit(ctx context.Context, fresh bool) (differs bool, err error) {
	now := time.Now()
	if !fresh && (r.options.Audit < 0 || now.Before(r.audited.Add(r.options.Audit))) {
		return false, nil
	}
	if r.audited = now; fresh {
		return false, nil // it is about to be read
	}
	names, err := r.link.namespaces(ctx)
	if err != nil && (r.options.Namespaces == nil || !isUnknown(err)) {
		return false, err
	}
	if !maps.Equal(names, r.mirror.namespaces) {
		r.renumbers.Store(true) // has everything read
		return false, nil
	}
	found, others, err := r.compare(ctx)
	if err != nil || len(found) == 0 {
		return others, err
	}
	counts := maps.Clone(r.drifts)
	for _, d := range found {
		counts[driftRule]++
		r.log.Warn("somebody has changed session rules in the vswitch; they are repaired", "what", d)
	}
	r.drifts = counts
	r.publish(fmt.Errorf("%w: %s", errDrift, renderer.Summary(found)))
	return true, nil
}

// wake has the owner told when the next audit, or look at connections, is due.
func (r *Renderer) wake() {
	times := []time.Time{r.revoked.at}
	if r.options.Audit > 0 && r.mirror != nil {
		times = append(times, r.audited.Add(r.options.Audit))
	}
	times = slices.DeleteFunc(times, func(t time.Time) bool { return !t.After(time.Now()) })
	if len(times) > 0 {
		r.link.WakeAt(slices.MinFunc(times, time.Time.Compare))
	}
}

// compare returns how our rules differ from the mirror, and whether those of others do.
func (r *Renderer) compare(ctx context.Context) (found []string, others bool, err error) {
	all, err := r.link.dump(ctx)
	if err != nil {
		return nil, false, err
	}
	has, rest := map[section]rules{}, 0
	for _, d := range all {
		f, ok := r.link.found(d)
		if !ok {
			continue
		}
		at := f.section
		at.namespace = slices.Min(f.namespaces)
		if has[at] == nil {
			has[at] = rules{}
		}
		has[at][f.place] = action(f.action)
		rest++
	}
	for _, s := range slices.SortedFunc(maps.Keys(r.mirror.sections), section.compare) {
		p := r.mirror.sections[s]
		found = append(found, s.differences(p.rules, has[s])...)
		rest -= len(p.rules)
	}
	for s, places := range r.mirror.foreign {
		for at := range places {
			_, there := has[s][at]
			others = others || !there
		}
		rest -= len(places)
	}
	return found, others || rest != 0, nil
}

// differences says which of our rules of a section are gone, or say something else.
func (s section) differences(ours, has rules) (out []string) {
	for _, at := range ours.sorted() {
		switch a, ok := has[at]; {
		case !ok:
			out = append(out, s.rule(at)+" is gone")
		case a != ours[at]:
			out = append(out, fmt.Sprintf("%s says %s instead of %s", s.rule(at), a, ours[at]))
		}
	}
	return out
}

// rule names a rule of a section.
func (s section) rule(at place) string {
	if s.local {
		return fmt.Sprintf("session rule of namespace %d to %s %s port %d", s.namespace, s.transport, at.peer, at.port)
	}
	return fmt.Sprintf("session rule from %s to %s %s port %d", at.peer, s.own, s.transport, at.port)
}

// placeBeside is what a rule of somebody else means among ours.
const placeBeside = "it stands beside ours, and decides where it is the more specific one"

// findForeign finds the rules of others in sections that have some of ours, and logs those that
// are new.
func (r *Renderer) findForeign() {
	var found []renderer.Foreign
	for _, s := range slices.SortedFunc(maps.Keys(r.mirror.foreign), section.compare) {
		pod, ours := r.holders[s]
		if !ours {
			continue
		}
		direction := api.Ingress
		if s.local {
			direction = api.Egress
		}
		places := r.mirror.foreign[s]
		for _, at := range slices.SortedFunc(maps.Keys(places), place.compare) {
			f := renderer.Foreign{Object: s.rule(at), Tag: places[at], At: "the host stack", Pods: []api.PodID{pod}, Direction: direction, First: true, Place: placeBeside}
			if !slices.ContainsFunc(r.foreign, func(o renderer.Foreign) bool { return o.Object == f.Object && slices.Equal(o.Pods, f.Pods) }) {
				r.log.Warn("a pod with policy has a session rule of somebody else", "pod", pod, "rule", f.Object, "tag", f.Tag, "place", f.Place)
			}
			found = append(found, f)
		}
	}
	r.foreign = found
}
