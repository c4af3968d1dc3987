package cli

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/term"
)

func newStoreRoles(o *options) *cobra.Command {
	var prefix string
	var nodes []string
	cmd := &cobra.Command{
		Use:   "roles [--node NODE]...",
		Short: "Print the commands that make the roles and users of etcd",
		Long: `Print commands of etcdctl that make a role and a user for each program, which may do what it needs
and no more. With --node each node has its own: its agent may write the status of that node alone,
and whoever connects its pods may name interfaces of that node alone. Without, one agent can report
for all nodes.

Users have no passwords: they are the common names of certificates. "auth enable" is not among the
commands; see docs/guide/ksr.md for what has to be there before.`,
		Example: `  sluicectl store roles --node node-1 --node node-2
  sluicectl store roles --node "$(kubectl get nodes -o jsonpath='{.items[*].metadata.name}' |
    tr ' ' ,)" | sh -e`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			commands, err := roleCommands(prefix, nodes)
			if err != nil {
				return err
			}
			return o.output.print(o.out, commands, func(w *term.Writer) {
				for _, c := range commands {
					w.Printf("%s\n", c)
				}
			})
		},
	}
	cmd.Flags().StringVar(&prefix, "etcd-prefix", model.DefaultPrefix, "prefix of the keys in etcd")
	cmd.Flags().StringSliceVar(&nodes, "node", nil, "names of nodes; none: one role for the agents of all nodes")
	return cmd
}

// plainPrefix matches prefixes that mean to a shell what they are.
var plainPrefix = regexp.MustCompile(`^(/[A-Za-z0-9._-]+)+$`)

// roleCommands returns commands of etcdctl, in the order in which they have to run.
func roleCommands(prefix string, nodes []string) (out []string, err error) {
	if !plainPrefix.MatchString(prefix) {
		return nil, fmt.Errorf("--etcd-prefix %s: want letters, digits and ._- behind slashes, as %s", model.Quoted(prefix), model.DefaultPrefix)
	}
	var users []string
	role := func(name string, grants ...string) {
		out = append(out, "etcdctl role add "+name)
		for _, g := range grants {
			out = append(out, fmt.Sprintf("etcdctl role grant-permission %s", g))
		}
		users = append(users, name)
	}
	below := func(role, what, key string) string { return "--prefix=true " + role + " " + what + " " + key }
	role("sluice-ksr", below("sluice-ksr", "readwrite", model.Root(prefix)), below("sluice-ksr", "readwrite", prefix+"/ksr/"),
		below("sluice-ksr", "read", model.StatusRoot(prefix)))
	if len(nodes) == 0 {
		role("sluice-agent", below("sluice-agent", "read", prefix+"/"), below("sluice-agent", "readwrite", model.StatusRoot(prefix)))
		role("sluice-cni", below("sluice-cni", "readwrite", model.VswitchRoot(prefix)))
	}
	for i, node := range nodes {
		if why := validation.IsDNS1123Subdomain(node); len(why) > 0 || slices.Contains(nodes[:i], node) {
			return nil, fmt.Errorf("--node %s: want the name of a node, once", model.Quoted(node))
		}
		// One key, and not what begins with it: that of node-10 begins with that of node-1.
		role("sluice-agent-"+node, below("sluice-agent-"+node, "read", prefix+"/"), "sluice-agent-"+node+" readwrite "+model.StatusRoot(prefix)+node)
		role("sluice-cni-"+node, below("sluice-cni-"+node, "readwrite", model.VswitchRoot(prefix)+node+"/"))
	}
	for _, u := range users {
		out = append(out, "etcdctl user add --no-password "+u, "etcdctl user grant-role "+u+" "+u)
	}
	return out, nil
}
