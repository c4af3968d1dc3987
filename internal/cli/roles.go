package cli

import (
	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/cli/credentials"
	"github.com/sluice-net/sluice/internal/lib/term"
)

func newStoreRoles(o *options) *cobra.Command {
	var prefix string
	var nodes []string
	cmd := &cobra.Command{
		Use:   "roles [--node NODE]...",
		Short: "Print the commands that make the roles and users of etcd",
		Long: `Print the etcdctl commands that create a role and a user with least rights for each program. With
--node each node has a role: its agent may write only the status of that node, and the component
that connects its pods only the interfaces of that node. Without --node, one agent can report for
all nodes.

Users have no passwords: they are the common names of certificates. The commands do not include
"auth enable"; docs/guide/ksr.md lists what it requires.`,
		Example: `  sluicectl store roles --node node-1 --node node-2
  sluicectl store roles --node "$(kubectl get nodes -o jsonpath='{.items[*].metadata.name}' |
    tr ' ' ,)" | sh -e`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			commands, err := credentials.Roles(prefix, nodes)
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
