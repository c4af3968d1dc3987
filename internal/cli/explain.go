package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
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
	var others []*client
	for _, e := range answers {
		for _, p := range []view.Party{e.Src, e.Dst} {
			if p.Node == "" || p.Node == c.node || slices.ContainsFunc(others, func(c *client) bool { return c.node == p.Node }) {
				continue
			}
			other, err := o.agentOfNode(ctx, p.Node)
			if err != nil {
				other = &client{node: p.Node, problem: err.Error()}
			}
			others = append(others, other)
		}
	}
	said := make([][]view.Explanation, len(others))
	var asked sync.WaitGroup
	for i, other := range others {
		asked.Go(func() {
			err := errors.New(other.problem)
			if other.problem == "" {
				err = other.post(ctx, "/v1/explain", q, &said[i])
			}
			if err != nil {
				o.miss(other, err)
			}
		})
	}
	asked.Wait()
	for i := range answers {
		e := &answers[i]
		e.Renderers, e.Packets = ofNode(*e, c.node)
		for n, other := range others {
			if e.Src.Node != other.node && e.Dst.Node != other.node {
				continue
			}
			at := slices.IndexFunc(said[n], func(v view.Explanation) bool { return isSameFlow(v, *e) })
			if at < 0 {
				e.Stale = cmp.Or(e.Stale, other.node+" did not say what it has installed")
				o.miss(other, errors.New("it knows no such flow yet"))
				continue
			}
			v := said[n][at]
			renderers, packets := ofNode(v, other.node)
			e.Renderers, e.Packets = append(e.Renderers, renderers...), append(e.Packets, packets...)
			e.RenderersDiffer, e.Stale = e.RenderersDiffer || v.RenderersDiffer, cmp.Or(e.Stale, v.Stale)
		}
	}
	return answers, nil
}

// isSameFlow reports whether two agents explain the same flow, to the same service.
func isSameFlow(a, b view.Explanation) bool {
	if (a.Service == nil) != (b.Service == nil) {
		return false
	}
	return a.Src == b.Src && a.Dst == b.Dst && a.Flow == b.Flow && (a.Service == nil || a.Service.Name == b.Service.Name && a.Service.Address == b.Service.Address && a.Service.Port == b.Service.Port)
}

// ofNode returns what a node says of a flow: about the ends that are there, and nothing if there are none,
// as others decide then.
func ofNode(e view.Explanation, node string) (renderers []view.Answer, packets []view.Packet) {
	if e.Src.Node == "" && e.Dst.Node == "" {
		return e.Renderers, e.Packets
	}
	for _, a := range e.Renderers {
		a.Node = node
		a.Decides = slices.DeleteFunc(slices.Clone(a.Decides), func(d api.Direction) bool {
			return d == api.Egress && e.Src.Node != node || d == api.Ingress && e.Dst.Node != node
		})
		if len(a.Decides) > 0 || !a.Agrees || a.Unasked != "" {
			renderers = append(renderers, a)
		}
	}
	for _, p := range e.Packets {
		p.Node = node
		packets = append(packets, p)
	}
	return renderers, packets
}
