package scenarios

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/tests/lab/harness"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// tables prints the tables of every node: the pods that share them and the number of their rules,
// or with the word rules all of them.
func (i inspection) tables(ctx context.Context, c command) (string, error) {
	full := false
	if n := len(c.CmdArgs) - 1; n >= 0 && c.CmdArgs[n].String() == "rules" {
		full, c.CmdArgs = true, c.CmdArgs[:n]
	}
	kind, here, err := i.ofKind(c)
	switch {
	case err != nil:
		return "", err
	case kind == "":
		return "", errors.New("want the name of a kind of dataplane")
	case !here:
		return c.Expected, nil
	}
	var b strings.Builder
	for _, name := range i.subject.running.Names() {
		if err := printTables(ctx, &b, i.subject.running.Node(name), full); err != nil {
			return "", err
		}
	}
	if b.Len() == 0 {
		return "none", nil
	}
	return b.String(), nil
}

func printTables(ctx context.Context, b *strings.Builder, n *harness.Node, full bool) error {
	stack, ok := n.Backend.(backends.Tabled)
	if !ok {
		return errors.New("the stack has no tables")
	}
	s, err := n.Plugin.Snapshot(ctx)
	if err != nil {
		return err
	}
	for _, t := range stack.Tables() {
		fmt.Fprintf(b, "%s: %s: %d rules\n", n.Name, holders(t), len(t.Rules))
		for _, rule := range t.Rules {
			if full {
				fmt.Fprintf(b, "  %s\n", meaning(rule, s))
			}
		}
	}
	return nil
}

func holders(t backends.Table) string {
	if len(t.Pods) == 0 {
		return "the node"
	}
	var names []string
	for _, p := range t.Pods {
		names = append(names, p.String())
	}
	return strings.Join(names, ", ")
}

// meaning replaces the names of sets by their content.
func meaning(rule string, s *policy.Snapshot) string {
	for _, set := range s.Sets {
		rule = strings.ReplaceAll(rule, set.ID.String(), "{"+set.Meaning+"}")
	}
	return rule
}
