package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/plugins/policy"
)

// Installed is what one node holds, room by room, as text.
type Installed struct {
	Plugin  string // pods with their rules, policies, sets with their members, problems
	Told    string // what renderers were told
	Backend string // what is installed
}

// Inspect reads everything.
func (n *Node) Inspect(ctx context.Context) (Installed, error) {
	s, err := n.Plugin.Snapshot(ctx)
	if err != nil {
		return Installed{}, err
	}
	out := Installed{Told: n.Told.Dump()}
	if out.Plugin, err = print(s); err != nil {
		return out, err
	}
	out.Backend, err = n.Backend.Installed()
	return out, err
}

// Diff says how this is not what another one is; empty when it is the same.
func (i Installed) Diff(other Installed) string {
	if i == other {
		return ""
	}
	return cmp.Diff(other, i)
}

// print writes a snapshot without its status, which counts transactions.
func print(s *policy.Snapshot) (string, error) {
	var b strings.Builder
	for _, print := range []func() error{
		func() error { return lines(&b, s.Namespaces) },
		func() error { return lines(&b, s.Pods) },
		func() error { return lines(&b, s.Policies) },
		func() error { return lines(&b, s.Sets) },
		func() error { return lines(&b, s.Problems) },
	} {
		if err := print(); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// lines writes one line of JSON per element.
func lines[T any](b *strings.Builder, list []T) error {
	for _, v := range list {
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		b.Write(append(text, '\n'))
	}
	return nil
}

// Dangling names every reference that leads to nothing in what is installed, and what
// renderers were told against the contract. A set that no rule names is neither: the
// contract permits it, for rules that others make superfluous; one that a new node does
// not have is found by Compare.
func (n *Node) Dangling() []string { return append(n.Told.Violations(), n.Backend.Dangling()...) }

// Compare says where this fleet is not what another one is, node by node, and what
// dangles in it; empty when there is nothing to say.
func (f *Cluster) Compare(ctx context.Context, fresh *Cluster) (string, error) {
	var b strings.Builder
	for _, name := range f.Names() {
		got, err := f.nodes[name].Inspect(ctx)
		if err != nil {
			return "", fmt.Errorf("node %s: %w", name, err)
		}
		want, err := fresh.nodes[name].Inspect(ctx)
		if err != nil {
			return "", fmt.Errorf("new node %s: %w", name, err)
		}
		if diff := got.Diff(want); diff != "" {
			fmt.Fprintf(&b, "node %s is not what a new one is (-new +running):\n%s\n", name, diff)
		}
		for _, d := range f.nodes[name].Dangling() {
			fmt.Fprintf(&b, "node %s: %s\n", name, d)
		}
	}
	return b.String(), nil
}

// Operations counts what changed in all stacks so far, and what renderers were told
// that changed anything.
func (f *Cluster) Operations() int {
	n := 0
	for _, node := range f.nodes {
		n += node.Backend.Operations() + node.Told.Operations()
	}
	return n
}
