package session

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// driftRule is the kind of what an audit finds: a rule that is gone, says something else, or came.
const driftRule = "rule"

var errDrift = errors.New("somebody has changed session rules in the vswitch")

// audits are looks at the rules that there are, and what they found.
type audits struct {
	every   time.Duration // less than 0: never
	last    time.Time
	drifts  map[string]uint64  // how often somebody changed what is ours, by kind; is replaced, not changed
	foreign []renderer.Foreign // rules of others beside ours; is replaced, not changed
}

// begin reports whether it is the time for an audit. What is fresh is about to be read, which
// does for one.
func (a *audits) begin(fresh bool) bool {
	now := time.Now()
	if !fresh && (a.every < 0 || now.Before(a.last.Add(a.every))) {
		return false
	}
	a.last = now
	return !fresh
}

// drifted counts and logs how our rules differ from what they should be.
func (a *audits) drifted(found []string, log *slog.Logger) {
	counts := maps.Clone(a.drifts)
	for _, d := range found {
		counts[driftRule]++
		log.Warn("somebody has changed session rules in the vswitch; they are repaired", "what", d)
	}
	a.drifts = counts
}

// placeBeside is what a rule of somebody else means among ours.
const placeBeside = "it stands beside ours, and decides where it is the more specific one"

// findForeign finds the rules of others in sections that have some of ours, and logs those that
// are new.
func (a *audits) findForeign(m *mirror, held holders, log *slog.Logger) {
	var found []renderer.Foreign
	for _, s := range slices.SortedFunc(maps.Keys(m.foreign), section.compare) {
		pod, ours := held[s]
		if !ours {
			continue
		}
		direction := api.Ingress
		if s.local {
			direction = api.Egress
		}
		places := m.foreign[s]
		for _, at := range slices.SortedFunc(maps.Keys(places), place.compare) {
			f := renderer.Foreign{Object: s.rule(at), Tag: places[at], At: "the host stack", Pods: []api.PodID{pod}, Direction: direction, First: true, Place: placeBeside}
			if !slices.ContainsFunc(a.foreign, func(o renderer.Foreign) bool { return o.Object == f.Object && slices.Equal(o.Pods, f.Pods) }) {
				log.Warn("a pod with policy has a session rule of somebody else", "pod", pod, "rule", f.Object, "tag", f.Tag, "place", f.Place)
			}
			found = append(found, f)
		}
	}
	a.foreign = found
}
