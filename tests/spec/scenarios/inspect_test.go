package scenarios

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// operations is how much one node has done.
type operations struct {
	received int // changes that its renderers received
	stack    int // changes in its dataplane
}

// inspection are the commands that look into nodes.
type inspection struct {
	scene
	log operationLog
}

// operations prints what every node did since the last time a file asked: the updates of pods and
// set members that renderers received, and with the name of a dataplane the changes in it.
func (i inspection) operations(_ context.Context, c command) (string, error) {
	kind, here, err := i.ofKind(c)
	if err != nil {
		return "", err
	}
	if !here {
		return c.Expected, nil
	}
	var out []string
	for _, name := range i.subject.running.Names() {
		n := i.subject.running.Node(name)
		now, before := n.Desired.Operations(), &i.log.of(name).received
		if kind != "" {
			now, before = n.Backend.Operations(), &i.log.of(name).stack
		}
		done := now - *before
		if *before = now; done != 0 {
			out = append(out, fmt.Sprintf("%s: %s", name, count(done)))
		}
	}
	if out == nil {
		return count(0), nil
	}
	return strings.Join(out, "\n"), nil
}

// operationLog is what nodes had done when a file asked last.
type operationLog map[string]*operations

func (l operationLog) of(node string) *operations {
	if l[node] == nil {
		l[node] = &operations{}
	}
	return l[node]
}

// ofKind reads the name of a kind of dataplane, if there is one, and reports whether the
// command concerns the kind that runs.
func (i inspection) ofKind(c command) (kind string, here bool, err error) {
	l := c.line()
	if c.Input != "" {
		return "", false, errNoInput
	}
	if len(l.args) == 0 {
		return "", true, nil
	}
	if kind, err = l.take("a kind of dataplane"); err != nil {
		return "", false, err
	}
	if _, err := backends.Named(backends.All, kind); err != nil && kind != i.subject.kind.Name {
		return "", false, err
	}
	return kind, kind == i.subject.kind.Name, l.end()
}

// problems prints where objects are wrong, as users see it; other tests compare the reasons in
// words.
func (i inspection) problems(ctx context.Context, c command) (string, error) {
	problems, err := i.allProblems(ctx)
	if err := errors.Join(err, c.plain()); err != nil {
		return "", err
	}
	if len(problems) == 0 {
		return "none", nil
	}
	return strings.Join(problems, "\n"), nil
}

// notes prints which policies have notes: they are not wrong, but may have effects that users do
// not expect.
func (i inspection) notes(ctx context.Context, c command) (string, error) {
	if err := c.plain(); err != nil {
		return "", err
	}
	var out []string
	for _, name := range i.subject.running.Names() {
		s, err := i.subject.running.Node(name).Plugin.Snapshot(ctx)
		if err != nil {
			return "", err
		}
		for _, p := range s.Policies {
			for _, n := range p.Notes {
				out = append(out, n.Object+": "+n.Field)
			}
		}
	}
	if out == nil {
		return "none", nil
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), "\n"), nil
}

// allProblems returns what is found when objects are reflected, and what a node finds
// in what is reflected. What both find is there once. That a dataplane cannot enforce a rule
// is no mistake of a file.
func (s scene) allProblems(ctx context.Context) ([]string, error) {
	found := map[api.Problem]bool{}
	for _, np := range s.world.state.Policies {
		add(found, np)
	}
	for _, o := range cluster.AdminPolicies(s.world.state) {
		add(found, o)
	}
	for _, p := range s.world.state.Pods {
		add(found, p)
	}
	for _, name := range s.subject.running.Names() {
		snapshot, err := s.subject.running.Node(name).Plugin.Snapshot(ctx)
		if err != nil {
			return nil, err
		}
		for _, p := range snapshot.Problems {
			if p.Class != api.ClassDataplane && !isKnown(found, p) {
				found[p] = true
			}
		}
	}
	var out []string
	for p := range maps.Keys(found) {
		out = append(out, p.Object+": "+p.Field)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func add(found map[api.Problem]bool, object any) {
	_, problems := convert.ToModel(object)
	for _, p := range problems {
		found[p] = true
	}
}

// isKnown reports whether the field of a problem, or a part of it, has one already.
func isKnown(found map[api.Problem]bool, p api.Problem) bool {
	for q := range found {
		if q.Object == p.Object && (q.Field == p.Field || strings.HasPrefix(q.Field, p.Field+".")) {
			return true
		}
	}
	return false
}
