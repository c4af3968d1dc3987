package cli

import (
	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/cli/reach"
)

// newDialStdio returns what sluicectl executes in the pod of an agent.
func newDialStdio(o *options) *cobra.Command {
	return &cobra.Command{
		Use: reach.Command, Short: "Join standard input and output with the agent's socket", Args: cobra.NoArgs, Hidden: true,
		Example: "  kubectl exec -i -n kube-system POD -c agent -- sluicectl " + reach.Command,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return reach.Stdio(cmd.Context(), o.socket, o.in, o.out)
		},
	}
}
