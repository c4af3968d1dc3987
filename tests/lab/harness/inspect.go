package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/plugins/policy"
)

// Installed is what one node holds, room by room, as text.
type Installed struct {
	Plugin  string // pods with their rules, policies, sets with their members, problems
	Desired string // the desired state that renderers received
	Backend string // what is installed
}

// Inspect reads everything.
func (n *Node) Inspect(ctx context.Context) (Installed, error) {
	s, err := n.Plugin.Snapshot(ctx)
	if err != nil {
		return Installed{}, err
	}
	out := Installed{Desired: n.Desired.Dump()}
	if out.Plugin, err = print(s); err != nil {
		return out, err
	}
	out.Backend, err = n.Backend.Installed()
	return out, err
}

// Diff describes how this differs from another one; empty if they are equal.
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

// Inspect reads everything, of all nodes.
func (f *Cluster) Inspect(ctx context.Context) (map[string]Installed, error) {
	out := map[string]Installed{}
	for _, name := range f.Names() {
		var err error
		if out[name], err = f.nodes[name].Inspect(ctx); err != nil {
			return nil, fmt.Errorf("node %s: %w", name, err)
		}
	}
	return out, nil
}

// differences says where nodes are not what new ones are; empty when there is nothing to say.
func differences(got, fresh map[string]Installed) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if diff := got[name].Diff(fresh[name]); diff != "" {
			fmt.Fprintf(&b, "node %s is not what a new one is (-new +running):\n%s\n", name, diff)
		}
	}
	return b.String()
}

// Operations counts what changed in all dataplanes so far, and the updates to renderers that
// changed anything.
func (f *Cluster) Operations() int {
	n := 0
	for _, node := range f.nodes {
		n += node.Backend.Operations() + node.Desired.Operations()
	}
	return n
}

// Written counts what changed in all dataplanes. Unlike Operations it continues when agents are
// replaced.
func (f *Cluster) Written() int {
	n := 0
	for _, node := range f.nodes {
		n += node.Backend.Operations()
	}
	return n
}
