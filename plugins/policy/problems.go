package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// problemTracker tracks all problems, and which began and ended since the last report. Layers
// report found and solved problems; a problem that ends and begins again within one transaction is
// not reported. No two layers report the same problem.
type problemTracker struct {
	present  map[api.Problem]bool
	policies map[string]int       // number of problems by object, for policies
	classes  map[api.Class]int    // number of problems of policies
	changed  map[api.Problem]bool // whether it existed at the last report
	read     []report
}

// report lists what one renderer cannot enforce.
type report struct {
	renderer string
	rules    []renderer.Unenforced // shared; the same slice while nothing changes
}

// ownName stands for the configurator among the names of renderers.
const ownName = "configurator"

func newProblemTracker() problemTracker {
	return problemTracker{
		present: map[api.Problem]bool{}, policies: map[string]int{}, classes: map[api.Class]int{},
		changed: map[api.Problem]bool{},
	}
}

// set records that a problem exists, or no longer exists.
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

// add adds d to a count, and removes it when it is zero.
func add[K comparable](counts map[K]int, k K, d int) {
	if d > 0 {
		counts[k]++
		return
	}
	if counts[k]--; counts[k] <= 0 {
		delete(counts, k)
	}
}

// takeChanged returns the problems that began and ended since the last call, sorted.
func (t *problemTracker) takeChanged() (begun, ended []api.Problem) {
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

// counts returns the problems of policies by class, and the number of affected policies.
func (t *problemTracker) counts() (classes []ProblemCount, policies int) {
	for _, c := range slices.Sorted(maps.Keys(t.classes)) {
		classes = append(classes, ProblemCount{c, t.classes[c]})
	}
	return classes, len(t.policies)
}

// reports returns the reports of the renderers, sorted, with the number of pods on request: it is
// not part of the identity of a problem.
func (t *problemTracker) reports(pods bool) (out []api.Problem) {
	for _, u := range t.read {
		for _, rule := range u.rules {
			if rule.Origin.Rule != api.NodeRule {
				out = append(out, problemOf(u.renderer, rule, pods))
			}
		}
	}
	slices.SortFunc(out, api.Problem.Compare)
	return slices.Compact(out)
}

// problemOf converts a renderer's report about a rule.
func problemOf(name string, u renderer.Unenforced, pods bool) api.Problem {
	p := api.Problem{Object: u.Origin.Policy.String(), Field: "spec", Class: u.Class,
		Reason: fmt.Sprintf("renderer %s: %s: %s", name, u.Reason, u.Effect)}
	if name == ownName {
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

// readReports takes over the reports of the renderers if any changed.
func (t *problemTracker) readReports(now []report) {
	if slices.EqualFunc(now, t.read, sameReport) {
		return
	}
	t.ended(t.reports(false))
	t.read = now
	t.found(t.reports(false))
}

// sameReport compares immutable slices by identity.
func sameReport(a, b report) bool {
	return len(a.rules) == len(b.rules) && (len(a.rules) == 0 || &a.rules[0] == &b.rules[0])
}

// found and ended record reports of a layer.
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
