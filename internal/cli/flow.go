package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/bundle"
	"github.com/sluice-net/sluice/internal/cli/explained"
	"github.com/sluice-net/sluice/internal/expr"
	"github.com/sluice-net/sluice/internal/matrix"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/internal/term"
	"github.com/sluice-net/sluice/internal/view"
)

func newInject(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "inject SRC DST:PORT/PROTO",
		Short: "Send the first packet of a flow through the embedded dataplane, and trace it",
		Long: `Send a packet through the dataplane's installed tables, and show each pod and uplink that it passed,
with the rules of policies that decided there. -o wide adds interfaces and entries of ACLs.
Directions are the pod's. It is a probe: no rule counts it, and no session is used, made or ended.

` + flowHelp,
		Example: `  sluicectl inject shop/web-0 shop/cart-0:http
  sluicectl inject shop/batch-0 203.0.113.10:443/tcp -o yaml`,
		Args: twoEnds, ValidArgsFunction: o.completeFlow,
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := expr.ParseQuestion(args[0], args[1])
			if err != nil {
				return err
			}
			var traces []view.Injection
			if err := o.client().post(cmd.Context(), "/v1/inject", q, &traces); err != nil {
				return err
			}
			if err := o.output.print(o.out, traces, func(w *term.Writer) { writeInjections(w, traces, o.output == formatWide) }); err != nil {
				return err
			}
			for _, t := range traces {
				if t.Verdict != api.Permit {
					return errNegative
				}
			}
			return nil
		},
	}
}

func writeInjections(w *term.Writer, all []view.Injection, wide bool) {
	var rows []explained.ServiceRow
	for _, in := range all {
		rows = append(rows, explained.ServiceRow{Service: in.Service, Src: in.Src, Dst: in.Dst, Flow: in.Flow, Allowed: in.Verdict == api.Permit})
	}
	explained.WriteServices(w, rows)
	all = slices.DeleteFunc(slices.Clone(all), func(in view.Injection) bool { return explained.LeadsNowhere(in.Service) })
	for i, in := range all {
		if i > 0 || in.Service != nil {
			w.Printf("\n")
		}
		v := explained.Verdict(in.Verdict == api.Permit)
		w.Printf("%s  %s -> %s  %s\n", w.Styled(v.Style, strings.ToUpper(v.Text)), side(in.Src), side(in.Dst), in.Flow)
		t := &term.Table{Indent: "  "}
		for _, h := range in.Hops {
			t.Row(hopRow(h, wide)...)
		}
		t.Print(w)
		w.Printf("  %s\n", in.Reason)
		if in.Expected != in.Verdict {
			w.Printf("  %s\n", w.Styled(term.Red, "the specification says "+in.Expected.String()+": please report this"))
		}
	}
}

// hopRow names the rules of policies that decided first, and what the dataplane has of them
// after these.
func hopRow(h view.Hop, wide bool) []any {
	why, rule := api.OriginTexts(h.Origins), ""
	switch {
	case why != "":
		rule = fmt.Sprintf("table %s rule %d: %s", h.Table, h.Rule, h.Match)
	case h.Action == api.Permit:
		why = "no policy decides here"
	default:
		why = h.By
	}
	row := []any{node.PlaceOf(h.Pod, h.Direction), h.Action, why, rule}
	if wide {
		row = append(row, h.By, h.Interface)
	}
	return row
}

func newMatrix(o *options) *cobra.Command {
	var open bool
	var manifests []string
	var selection matrix.Selection
	cmd := &cobra.Command{
		Use:   "matrix",
		Short: "Show who can talk to whom, asked packet by packet of the dataplane",
		Long: `Show which groups of pods, blocks and the world outside can talk to which, on the ports that the
pods declare. Every cell is asked packet by packet of the embedded dataplane, and compared with the
specification. With --manifests no agent is asked: the dataplane has all pods of the manifests, on
one node.

-n, --from and --to ask about less: a namespace, a group as the matrix shows it, or what is outside.
A matrix that does not fit the terminal, or has more than 60 groups, is grouped by namespace, but
for what they name.`,
		Example: `  sluicectl matrix
  sluicectl matrix -n shop --open
  sluicectl matrix --from shop/web,internet --to data
  sluicectl matrix --manifests docs/examples/shop -o json
  sluicectl matrix --from node-1.tgz -n shop`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.patient(cmd, 0) // packet by packet, it takes as long as there are pods and ports
			manifests, err := bundleIn(manifests, &selection)
			if err != nil {
				return err
			}
			m, err := o.whoCanTalk(cmd.Context(), cmd.ErrOrStderr(), manifests, selection)
			if err != nil {
				return err
			}
			return o.output.print(o.out, m, func(w *term.Writer) {
				m.Write(w)
				w.Printf("%s sent; %s\n", term.Count(m.Probes, "packet"), agreement(w, m.Differ))
				if open {
					w.Printf("\n")
					m.WriteOpen(w)
				}
			})
		},
	}
	cmd.Flags().BoolVar(&open, "open", false, "also list in words what is open")
	cmd.Flags().StringVarP(&selection.Namespace, "namespace", "n", "", "only pairs of which one end is in this namespace")
	cmd.Flags().StringSliceVar(&selection.From, "from", nil, "only these sources (repeatable): NAMESPACE, NAMESPACE/GROUP, internet or a block; the file of a bundle: its state instead of the agent's")
	cmd.Flags().StringSliceVar(&selection.To, "to", nil, "only these destinations (repeatable)")
	onlyManifestsFlag(cmd, &manifests)
	return cmd
}

// bundleIn takes the bundle from among the sources that a matrix is limited to.
func bundleIn(manifests []string, s *matrix.Selection) ([]string, error) {
	var bundles []string
	s.From = slices.DeleteFunc(slices.Clone(s.From), func(from string) bool {
		if !bundle.Is(from) {
			return false
		}
		bundles = append(bundles, from)
		return true
	})
	if len(bundles) > 1 || len(bundles) > 0 && len(manifests) > 0 {
		return nil, errors.New("--from and --manifests: want one state, of an agent, a bundle or manifests")
	}
	return append(manifests, bundles...), nil
}

// whoCanTalk asks the agent, or what the manifests describe.
func (o *options) whoCanTalk(ctx context.Context, errOut io.Writer, manifests []string, s matrix.Selection) (m view.Matrix, err error) {
	if len(manifests) == 0 {
		q := url.Values{"from": s.From, "to": s.To}
		if s.Namespace != "" {
			q.Set("namespace", s.Namespace)
		}
		err = o.client().get(ctx, "/v1/matrix?"+q.Encode(), &m)
		return m, err
	}
	described, err := o.described(errOut, manifests)
	if err != nil {
		return m, err
	}
	return described.Matrix(ctx, s)
}
