package cli

import (
	"context"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/analysis/expr"
	"github.com/sluice-net/sluice/internal/cli/explained"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/view"
)

func newExplain(o *options) *cobra.Command {
	var manifests []string
	var verbose bool
	cmd := &cobra.Command{
		Use:   "explain SRC DST:PORT/PROTO",
		Short: "Explain why a flow is allowed or denied",
		Long: `Explain a verdict in at most 10 lines: what decides at each end, the rule that came nearest and why
it does not match, one fix, which was tried, and whether what is installed agrees. -v prints the
complete answer: every policy that selects either end, for each rule why it matched or which term
failed, what the tables of each renderer do and which policies they name, and further changes. -o
wide is -v with the names of sets and tables.

With --manifests no agent is asked: the manifests are judged by the specification and by the whole
pipeline with the embedded dataplane. Problems of the manifests go to the standard error.

` + flowHelp + `

Exit codes: 0 every flow is allowed, 1 some are denied or a service has no endpoint, 2 error, or
manifests with problems.`,
		Example: `  sluicectl explain shop/web-0 data/postgres-0:5432/tcp
  sluicectl explain 198.51.100.7 platform/app=gateway:https
  sluicectl explain shop/app=cart [fd00:10::10]:8443 -o json
  sluicectl explain shop/web-0 svc/shop/cart:http
  sluicectl explain --manifests docs/examples/shop shop/web-0 shop/cart-0:http`,
		Args: twoEnds, ValidArgsFunction: o.completeFlow,
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := expr.ParseQuestion(args[0], args[1])
			if err != nil {
				return err
			}
			answers, err := o.explanations(cmd.Context(), cmd.ErrOrStderr(), q, manifests)
			if err != nil {
				return err
			}
			if err := o.output.print(o.out, answers, func(w *term.Writer) {
				switch {
				case o.output == formatWide:
					explained.Write(w, answers, explained.Wide)
				case verbose:
					explained.Write(w, answers, explained.Verbose)
				default:
					explained.Write(w, answers, explained.Brief)
				}
			}); err != nil {
				return err
			}
			if slices.ContainsFunc(answers, func(e view.Explanation) bool { return !e.Allowed }) {
				return errNegative
			}
			return nil
		},
	}
	o.manifestsFlag(cmd, &manifests)
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "every policy, rule and change")
	return cmd
}

// explanations asks the agent, or what the manifests describe.
func (o *options) explanations(ctx context.Context, errOut io.Writer, q view.Question, manifests []string) ([]view.Explanation, error) {
	if len(manifests) == 0 {
		var answers []view.Explanation
		err := o.client().post(ctx, "/v1/explain", q, &answers)
		return answers, err
	}
	m, err := o.described(errOut, manifests)
	if err != nil {
		return nil, err
	}
	return m.Explain(ctx, q)
}
