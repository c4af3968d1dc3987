package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func newGet(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get",
		Short: "List what the agent knows and enforces",
		Long: `List what the agent knows and enforces: all of a kind, or what is named. A name is exact, and stands
for that name in every namespace unless it has one, as in shop/web-0, or --namespace is given.
--contains lists what has a text in its name.

Exit codes: 0 done, 1 something that is named is not there, 2 error.`,
		Example: `  sluicectl get pods -n shop
  sluicectl get pod shop/web-0 data/redis-0
  sluicectl get sets --contains app=web
  sluicectl get rules global -o yaml`,
		Args: cobra.ArbitraryArgs,
		RunE: oneOf,
	}
	namespace := cmd.PersistentFlags().StringP("namespace", "n", "", "only this namespace")
	cmd.AddCommand(
		podList.command(o, namespace),
		policyList.command(o, namespace),
		newPolicy(o, namespace),
		setList.command(o, namespace),
		tableList.command(o, namespace),
		ruleList.command(o, namespace),
		endpointList.command(o, namespace),
		newNodes(o, namespace),
		newStatus(o),
	)
	return cmd
}

// oneOf is run for a command that only has others below it: without an argument it is
// asked what these are.
func oneOf(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	return fmt.Errorf("%s has no %q: want %s", cmd.CommandPath(), args[0], strings.Join(names, ", "))
}
