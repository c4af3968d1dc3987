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

// driftRule is the kind of drift of rules: one that is missing, changed or added.
const driftRule = "rule"

var errDrift = errors.New("session rules in the vswitch were changed by another program")

// audits compare the installed session rules with the expected ones.
type audits struct {
	every   time.Duration // negative: never
	last    time.Time
	drifts  map[string]uint64  // foreign changes that were found, by kind; replaced, never modified
	foreign []renderer.Foreign // rules of other owners; replaced, never modified
}

// begin reports whether an audit is due. A fresh read replaces an audit.
func (a *audits) begin(fresh bool) bool {
	now := time.Now()
	if !fresh && (a.every < 0 || now.Before(a.last.Add(a.every))) {
		return false
	}
	a.last = now
	return !fresh
}

// drifted counts and logs the differences of our rules.
func (a *audits) drifted(found []string, log *slog.Logger) {
	counts := maps.Clone(a.drifts)
	for _, d := range found {
		counts[driftRule]++
		log.Warn("session rules in the vswitch were changed by another program; repairing them", "what", d)
	}
	a.drifts = counts
}

// placeBeside is the effect of a foreign rule among ours.
const placeBeside = "it is beside Sluice's rules, and decides where it is more specific"

// findForeign finds the rules of other owners in sections with rules of ours, and logs new ones.
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
				log.Warn("found a session rule of another owner for a pod with policy", "pod", pod, "rule", f.Object, "tag", f.Tag, "place", f.Place)
			}
			found = append(found, f)
		}
	}
	a.foreign = found
}
