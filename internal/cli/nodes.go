package cli

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/term"
	"github.com/sluice-net/sluice/internal/view"
)

func newNodes(o *options, namespace *string) *cobra.Command {
	var policy string
	cmd := &cobra.Command{
		Use:     "nodes [NODE...]",
		Aliases: []string{"node", "no"},
		Short:   "Say for every node whether it enforces a policy yet, or everything",
		Long: `Say for every node of the cluster, or for those that are named, whether it enforces a policy as it
is now, or, without --policy, everything that was changed. TARGET is the revision of etcd at which
that changed, REVISION how much of it the node enforces: the same once it enforces all. Nodes report
that through etcd at once; while there are many changes, every 10 seconds (--status-interval of the
agent). Nothing is known of a node on which no agent reports. The exit code is 1 while a node does
not enforce it, or none reports.`,
		Example: `  sluicectl get nodes
  sluicectl get nodes --policy shop/web
  sluicectl get nodes node-1 node-2 -n shop --policy web`,
		RunE: func(cmd *cobra.Command, names []string) error {
			if i := slices.IndexFunc(names, func(name string) bool { return strings.Contains(name, "/") }); i >= 0 {
				return fmt.Errorf("%q is not the name of a node: for a policy want --policy %s", names[i], names[i])
			}
			q := url.Values{}
			if policy != "" {
				in, name, err := splitName(policy, *namespace)
				if err != nil {
					return fmt.Errorf("--policy %w", err)
				}
				q.Set("namespace", in)
				q.Set("name", name)
			}
			nodes := []view.NodeEnforcement{}
			if err := o.client().get(cmd.Context(), "/v1/nodes?"+q.Encode(), &nodes); err != nil {
				return err
			}
			nodes, missing := namedNodes(nodes, names)
			if err := o.output.print(o.out, nodes, func(w *term.Writer) { writeNodes(w, nodes, names, time.Now()) }); err != nil {
				return err
			}
			if err := missing.report(cmd.ErrOrStderr()); err != nil {
				return err
			}
			if len(nodes) == 0 || slices.ContainsFunc(nodes, func(n view.NodeEnforcement) bool { return n.Enforced != view.EnforcedFully }) {
				return errNegative
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&policy, "policy", "", "ask about this policy: NAMESPACE/NAME, or NAME for a policy of administrators or with --namespace")
	return cmd
}

// namedNodes returns the nodes of the names, or all where there are none.
func namedNodes(all []view.NodeEnforcement, names []string) (nodes []view.NodeEnforcement, missing notFound) {
	if len(names) == 0 {
		return all, nil
	}
	nodes = []view.NodeEnforcement{}
	for _, name := range names {
		i := slices.IndexFunc(all, func(n view.NodeEnforcement) bool { return n.Node == name })
		if i < 0 {
			missing = append(missing, quotedName("nodes", "", name))
			continue
		}
		nodes = append(nodes, all[i])
	}
	return nodes, missing
}

func writeNodes(w *term.Writer, nodes []view.NodeEnforcement, names []string, now time.Time) {
	switch {
	case len(nodes) == 0 && len(names) > 0:
		return // each is reported as missing
	case len(nodes) == 0:
		w.Printf("no node reports what it enforces: agents do with --node and --status-interval\n")
		return
	}
	t := term.NewTable("NODE", "ENFORCED", "REVISION", "TARGET", "REPORTED", "VERSION")
	for _, n := range nodes {
		enforced := term.Cell{Text: string(n.Enforced), Style: term.Green}
		if n.Enforced != view.EnforcedFully {
			enforced = term.Cell{Text: string(n.Enforced) + ": " + n.Why, Style: term.Amber}
		}
		t.Row(n.Node, enforced, reached(n), n.Wanted, ago(n.Time, now), n.Version)
	}
	t.Print(w)
}

// reached returns how much of the target a node enforces. The store moves on without it,
// too, so that the revision of the node alone cannot be compared with the target.
func reached(n view.NodeEnforcement) string {
	if n.Time.IsZero() {
		return "-"
	}
	return strconv.FormatInt(min(n.Revision, n.Wanted), 10)
}
