package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

// completionTime bounds how long an agent may take to complete a word.
const completionTime = 2 * time.Second

// completeGet completes kinds, and then names.
func (o *options) completeGet(cmd *cobra.Command, f getFlags, args []string, kinds []resource) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		var out []string
		for _, k := range kinds {
			out = append(out, cobra.CompletionWithDesc(k.names()[0], k.about()))
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
	kind, _, err := resourceOf(args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	r, err := o.getRun(cmd, f)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(r.ctx(), completionTime)
	defer cancel()
	cmd.SetContext(ctx)
	names, err := kind.known(r)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
