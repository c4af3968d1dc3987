package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/expr"
	"github.com/sluice-net/sluice/internal/cli/explained"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/node"
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
			c, err := o.agentOfPod(cmd.Context(), q.Src)
			if err != nil {
				return err
			}
			if err := c.post(cmd.Context(), "/v1/inject", q, &traces); err != nil {
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
