package cli

import (
	"cmp"
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
		return o.explainedByNodes(ctx, q)
	}
	m, err := o.described(errOut, manifests)
	if err != nil {
		return nil, err
	}
	return m.Explain(ctx, q)
}

// explainedByNodes asks the agent or, in a cluster, those of the nodes of both ends: each of these decides
// one direction, and says what it has installed.
func (o *options) explainedByNodes(ctx context.Context, q view.Question) ([]view.Explanation, error) {
	c, err := o.agentOfPod(ctx, q.Src)
	if err != nil {
		return nil, err
	}
	var answers []view.Explanation
	if err := c.post(ctx, "/v1/explain", q, &answers); err != nil || c.node == "" || len(o.nodes) > 0 {
		return answers, err
	}
	var nodes []string
	for _, e := range answers {
		for _, p := range []view.Party{e.Src, e.Dst} {
			if p.Node != "" && p.Node != c.node && !slices.Contains(nodes, p.Node) {
				nodes = append(nodes, p.Node)
			}
		}
	}
	var others []*client
	for _, node := range nodes {
		other, err := o.agentOfNode(ctx, node)
		if err != nil {
			o.miss(&client{node: node}, err)
			continue
		}
		others = append(others, other)
	}
	more, err := askAll(ctx, o, others, func(ctx context.Context, other *client) (out []view.Explanation, err error) {
		if err = other.post(ctx, "/v1/explain", q, &out); err != nil {
			o.miss(other, err)
		}
		return out, nil
	})
	for i := range answers {
		keepDeciding(&answers[i])
		for _, e := range slices.Concat(more...) {
			if e.Src == answers[i].Src && e.Dst == answers[i].Dst && e.Flow == answers[i].Flow {
				keepDeciding(&e)
				answers[i].Renderers = append(answers[i].Renderers, e.Renderers...)
				answers[i].Packets = append(answers[i].Packets, e.Packets...)
				answers[i].RenderersDiffer = answers[i].RenderersDiffer || e.RenderersDiffer
				answers[i].Stale = cmp.Or(answers[i].Stale, e.Stale)
			}
		}
	}
	return answers, err
}

// keepDeciding leaves out what a node says that decides nothing of the flow, as another one does.
func keepDeciding(e *view.Explanation) {
	if e.Src.Node == "" && e.Dst.Node == "" {
		return
	}
	e.Renderers = slices.DeleteFunc(e.Renderers, func(a view.Answer) bool { return len(a.Decides) == 0 && a.Agrees && a.Unasked == "" })
}
