package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/policy/internal/configurator"
	"github.com/sluice-net/sluice/renderer"
)

// problemTracker knows every problem there is, and which began and which ended since people
// were told. A layer says what it found and what it solved; a problem that ends and
// begins again within one transaction did neither. No two layers find the same.
type problemTracker struct {
	present  map[api.Problem]bool
	policies map[string]int       // problems by object, of policies
	classes  map[api.Class]int    // problems of policies
	changed  map[api.Problem]bool // whether it was there when people were told
	read     []configurator.Unenforced
}

func newProblemTracker() problemTracker {
	return problemTracker{
		present: map[api.Problem]bool{}, policies: map[string]int{}, classes: map[api.Class]int{},
		changed: map[api.Problem]bool{},
	}
}

// set notes that a problem is there, or is not there any more.
func (t *problemTracker) set(p api.Problem, there bool) {
	if t.present[p] == there {
		return
	}
	if _, noted := t.changed[p]; !noted {
		t.changed[p] = !there
	}
	d := +1
	if t.present[p] = there; !there {
		delete(t.present, p)
		d = -1
	}
	if isPolicy(p.Object) {
		add(t.policies, p.Object, d)
		add(t.classes, p.Class, d)
	}
}

// isPolicy reports whether the object of a problem is a policy.
func isPolicy(object string) bool {
	kind, _, _ := strings.Cut(object, " ")
	return new(api.PolicyKind).UnmarshalText([]byte(kind)) == nil
}

// add changes a count by one, and forgets it when it is zero.
func add[K comparable](counts map[K]int, k K, d int) {
	if d > 0 {
		counts[k]++
		return
	}
	if counts[k]--; counts[k] <= 0 {
		delete(counts, k)
	}
}

// take returns what has begun and what has ended since the last call, sorted.
func (t *problemTracker) take() (begun, ended []api.Problem) {
	for p, was := range t.changed {
		switch {
		case t.present[p] && !was:
			begun = append(begun, p)
		case was && !t.present[p]:
			ended = append(ended, p)
		}
	}
	clear(t.changed)
	slices.SortFunc(begun, api.Problem.Compare)
	slices.SortFunc(ended, api.Problem.Compare)
	return begun, ended
}

// counts returns the problems of policies by class, and how many policies have some.
func (t *problemTracker) counts() (classes []ProblemCount, policies int) {
	for _, c := range slices.Sorted(maps.Keys(t.classes)) {
		classes = append(classes, ProblemCount{c, t.classes[c]})
	}
	return classes, len(t.policies)
}

// reports returns what the renderers report, sorted, with the number of pods when
// asked for: that is not a part of what a problem is.
func (t *problemTracker) reports(pods bool) (out []api.Problem) {
	for _, u := range t.read {
		for _, rule := range u.Rules {
			if rule.Origin.Rule != api.NodeRule {
				out = append(out, problemOf(u.Renderer, rule, pods))
			}
		}
	}
	slices.SortFunc(out, api.Problem.Compare)
	return slices.Compact(out)
}

// problemOf says what a renderer reports of a rule.
func problemOf(name string, u renderer.Unenforced, pods bool) api.Problem {
	p := api.Problem{Object: u.Origin.Policy.String(), Field: "spec", Class: u.Class,
		Reason: fmt.Sprintf("renderer %s: %s: %s", name, u.Reason, u.Effect)}
	if name == configurator.OwnName {
		p.Reason = u.Reason
	}
	if u.Origin.Rule >= 0 {
		p.Field = fmt.Sprintf("spec.%s[%d]", u.Origin.Direction, u.Origin.Rule)
	}
	if pods && u.Pods > 0 {
		p.Reason += fmt.Sprintf(" (local pods: %d)", u.Pods)
	}
	return p
}

// readReports takes over what the renderers report, unless all of it is as it was.
func (t *problemTracker) readReports(now []configurator.Unenforced) {
	if slices.EqualFunc(now, t.read, sameReport) {
		return
	}
	t.ended(t.reports(false))
	t.read = now
	t.found(t.reports(false))
}

// sameReport compares slices that are never changed by where they are.
func sameReport(a, b configurator.Unenforced) bool {
	return len(a.Rules) == len(b.Rules) && (len(a.Rules) == 0 || &a.Rules[0] == &b.Rules[0])
}

// found and ended take what a layer says.
func (t *problemTracker) found(problems []api.Problem) {
	for _, x := range problems {
		t.set(x, true)
	}
}

func (t *problemTracker) ended(problems []api.Problem) {
	for _, x := range problems {
		t.set(x, false)
	}
}
