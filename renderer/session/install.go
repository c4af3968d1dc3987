package session

import (
	"context"

	"fmt"
	"maps"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/session"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// look finds the namespaces of pods, and reads the rules that there are unless they are known.
func (r *Renderer) look(ctx context.Context, fresh bool) error {
	renumbered := r.renumbers.Swap(false)
	names, err := r.link.namespaces(ctx)
	if err != nil && (r.options.Namespaces == nil || !isUnknown(err)) {
		return err
	}
	now := r.numbers(names)
	if r.mirror != nil && !fresh && !renumbered && maps.Equal(names, r.mirror.namespaces) && maps.EqualFunc(r.namespaces, now, slices.Equal) {
		return nil
	}
	r.mirror, r.namespaces = nil, now
	if err := r.link.initTables(ctx, r.namespaces); err != nil {
		return err
	}
	m, err := r.link.read(ctx, names, r.isMine)
	if err != nil {
		return err
	}
	r.mirror = m
	r.log.Info("read the session layer", "version", r.version, "namespaces", len(r.namespaces), "sections", len(m.sections))
	return nil
}

// numbers returns the namespaces of pods.
func (r *Renderer) numbers(names map[string]uint32) map[api.PodID][]uint32 {
	out := map[api.PodID][]uint32{}
	for pod := range r.own {
		if r.options.Namespaces != nil {
			if index, ok := r.options.Namespaces(pod); ok {
				out[pod] = []uint32{index}
			}
			continue
		}
		for _, name := range r.namesOf(pod) {
			if index, ok := names[name]; ok {
				out[pod] = append(out[pod], index)
			}
		}
		slices.Sort(out[pod])
	}
	return out
}

// namesOf returns the names of the namespaces that a pod has if they are there.
func (r *Renderer) namesOf(pod api.PodID) []string {
	if r.options.Names != nil {
		if names := r.options.Names(pod); len(names) > 0 {
			return names
		}
	}
	return []string{NamespaceID(pod)}
}

// isMine says whether only we should have rules in a section, for rules whose tags cannot be
// read: it is about one address, or about a namespace that is a pod's.
func (r *Renderer) isMine(s section) bool {
	if !s.local {
		return s.own.IsSingleIP()
	}
	for _, of := range r.namespaces {
		if slices.Contains(of, s.namespace) {
			return true
		}
	}
	return false
}

// tableOf returns the first of the namespaces of a routing table, which stands for it.
func (r *Renderer) tableOf(namespace uint32, family int) uint32 {
	if first, ok := r.mirror.tables[tableKey{namespace, family}]; ok {
		return first
	}
	return namespace
}

// install makes all changes: round by round, in which no two depend on each other.
func (r *Renderer) install(ctx context.Context, d *desired) error {
	d.checkSizes()
	d.checkForeign()
	var jobs []*job
	for s, p := range r.mirror.sections {
		if _, ok := d.sections[s]; !ok && !d.kept[s] && len(p.rules) > 0 {
			d.sections[s] = &wanted{}
		}
	}
	for _, s := range slices.SortedFunc(maps.Keys(d.sections), section.compare) {
		p, w := r.mirror.section(s), d.sections[s]
		if p.as == w {
			continue
		}
		steps, _ := plan(p.rules, w.rules, s.family)
		p.as = nil
		if r.holders[s] != d.holders[s] {
			r.holders[s] = api.PodID{} // until all is done, it may have rules of either
		}
		if of := r.addressesOf(s); len(of) > 0 && slices.ContainsFunc(steps, step.tightens) {
			r.revoked.tightened(of...)
		}
		jobs = append(jobs, &job{section: s, present: p, want: w, rounds: divide(steps)})
	}
	for round := 0; ; round++ {
		var changes []*session.SessionRuleAddDel
		for _, j := range jobs {
			if round < len(j.rounds) {
				changes = j.take(changes, r.link, j.rounds[round])
			}
		}
		if len(changes) == 0 {
			break
		}
		if err := r.link.send(ctx, changes); err != nil {
			return err
		}
	}
	r.holders = d.holders
	for _, j := range jobs {
		j.present.as = j.want
		if len(j.present.rules) == 0 {
			delete(r.mirror.sections, j.section)
		}
	}
	return nil
}

// job is a section that changes.
type job struct {
	section
	present *present
	want    *wanted
	rounds  [][]step
}

// divide divides steps into rounds: a step that does something else than the one before waits
// until that is done. Within a round steps may fail and succeed in any combination.
func divide(steps []step) (rounds [][]step) {
	for i, s := range steps {
		if i == 0 || steps[i-1].add != s.add || steps[i-1].action != s.action {
			rounds = append(rounds, nil)
		}
		rounds[len(rounds)-1] = append(rounds[len(rounds)-1], s)
	}
	return rounds
}

// take appends the requests of a round, and takes them as done: after any error everything is
// read back.
func (j *job) take(changes []*session.SessionRuleAddDel, l *link, round []step) []*session.SessionRuleAddDel {
	for _, s := range round {
		tag := j.present.tags[s.place]
		if s.add {
			tag = tagOf(j.section, s.place, s.action, j.want.originOf(j.section))
			j.present.rules[s.place], j.present.tags[s.place] = s.action, tag
		} else {
			delete(j.present.rules, s.place)
			delete(j.present.tags, s.place)
		}
		changes = append(changes, l.change(j.section, s.add, s.place, s.action, tag))
	}
	return changes
}

// originOf returns what tags say of where a rule is from. Those of IPv6 must be known from
// the rule alone, because VPP does not tell them.
func (w *wanted) originOf(s section) string {
	if s.family == 1 {
		return ""
	}
	return w.origin
}

// checkSizes refuses sections that have too many rules.
func (d *desired) checkSizes() {
	told := map[string]bool{}
	for _, s := range slices.SortedFunc(maps.Keys(d.sections), section.compare) {
		w := d.sections[s]
		if len(w.rules) <= d.r.options.MaxRules {
			continue
		}
		if !told[w.origin] {
			told[w.origin] = true
			d.refused = append(d.refused, fmt.Errorf("%w: %s needs %d rules of at most %d: name fewer ports in its policies", ErrTooLarge, s.of(d.holders[s]), len(w.rules), d.r.options.MaxRules))
			d.oversize = append(d.oversize, unenforced(w.origins)...)
		}
		if p := d.r.mirror.sections[s]; p != nil && len(p.rules) > 0 && d.r.isHeldBy(s, d.holders[s]) {
			d.kept[s] = true
			delete(d.sections, s)
			continue
		}
		d.sections[s] = &wanted{rules: rules{tops[s.family]: api.Deny}, origin: w.origin}
	}
}

// isHeldBy says whether the rules that a section has may be those of a pod: an address and a namespace
// go from one pod to another. Whose the rules of a process before are is not known.
func (r *Renderer) isHeldBy(s section, pod api.PodID) bool {
	holder, known := r.holders[s]
	return !known || holder == pod
}

// checkForeign leaves out what is taken by rules of others.
func (d *desired) checkForeign() {
	for s, places := range d.r.mirror.foreign {
		w := d.sections[s]
		if w == nil {
			continue
		}
		rest := maps.Clone(w.rules)
		for at := range places {
			if _, ok := rest[at]; ok {
				delete(rest, at)
				d.refused = append(d.refused, fmt.Errorf("%w: %s port %d of %s of pod %s", ErrForeignRule, at.peer, at.port, s.transport, w.origin))
			}
		}
		if len(rest) < len(w.rules) {
			d.sections[s] = &wanted{rules: rest, origin: w.origin}
		}
	}
	slices.SortFunc(d.refused, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
}

// unenforced reports the rules of a table that is refused.
func unenforced(origins [][]api.Origin) (out []renderer.Unenforced) {
	for _, of := range origins {
		for _, o := range of {
			out = append(out, renderer.Unenforced{Origin: o, Class: api.ClassLimit, Reason: reasonSize, Effect: renderer.EffectPrevious, Pods: 1})
		}
	}
	return out
}
