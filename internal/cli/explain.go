package cli

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/explain"
	"github.com/sluice-net/sluice/internal/expr"
	"github.com/sluice-net/sluice/internal/term"
	"github.com/sluice-net/sluice/internal/view"
)

func newExplain(o *options) *cobra.Command {
	var manifests []string
	cmd := &cobra.Command{
		Use:   "explain SRC DST:PORT/PROTO",
		Short: "Say whether a flow is allowed, and why",
		Long: `Explain a verdict: the one reason first, then every policy that selects either end, for each rule
why it matched or which term failed, what the tables of each renderer do and which policies they
name, and the smallest changes that would turn the verdict around. Each of these was tried.

With --manifests no agent is asked: the manifests are judged by the specification and by the whole
pipeline with the embedded dataplane. Problems of the manifests go to the standard error.

` + flowHelp + `

Exit codes: 0 every flow is allowed, 1 some are denied or a service has no endpoint, 2 error.`,
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
			if err := o.output.print(o.out, answers, func(w *term.Writer) { writeExplanations(w, answers) }); err != nil {
				return err
			}
			if slices.ContainsFunc(answers, func(e view.Explanation) bool { return !e.Allowed }) {
				return errNegative
			}
			return nil
		},
	}
	manifestsFlag(cmd, &manifests)
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

// alike are explanations of one verdict for one reason.
type alike []view.Explanation

// grouped puts explanations together that say the same: those of what is denied
// first, else in the order of the first of each.
func grouped(all []view.Explanation) []alike {
	var out []alike
	at := map[string]int{}
	for _, e := range all {
		key := fmt.Sprint(e.Allowed, explain.Disagrees(e), e.RenderersDiffer, e.Oracle.Notes,
			e.Oracle.Egress.Reason, e.Oracle.Egress.Deciding, e.Oracle.Ingress.Reason, e.Oracle.Ingress.Deciding)
		i, ok := at[key]
		if !ok {
			i = len(out)
			at[key], out = i, append(out, nil)
		}
		out[i] = append(out[i], e)
	}
	slices.SortStableFunc(out, func(a, b alike) int { // people ask about what is denied
		switch {
		case a[0].Allowed == b[0].Allowed:
			return 0
		case b[0].Allowed:
			return -1
		}
		return 1
	})
	return out
}

// writeExplanations writes what a single flow's answer is, or how those of several
// differ and one of each kind.
func writeExplanations(w *term.Writer, all []view.Explanation) {
	var rows []serviceRow
	for _, e := range all {
		rows = append(rows, serviceRow{e.Service, e.Src, e.Dst, e.Flow, e.Allowed})
	}
	of := writeServices(w, rows)
	all = slices.DeleteFunc(slices.Clone(all), func(e view.Explanation) bool { return leadsNowhere(e.Service) })
	groups := grouped(all)
	if len(all) > 1 && of == 0 {
		writeOverview(w, all, len(groups))
	}
	for i, g := range groups {
		if i > 0 || len(all) > 1 || of > 0 {
			w.Printf("\n")
		}
		writeExplanation(w, g[0])
		writeOthers(w, g[1:])
	}
}

// writeOverview is the first line when there are several flows.
func writeOverview(w *term.Writer, all []view.Explanation, kinds int) {
	denied := 0
	for _, e := range all {
		if !e.Allowed {
			denied++
		}
	}
	reasons := "for one reason"
	if kinds > 1 {
		reasons = fmt.Sprintf("for %d reasons", kinds)
	}
	switch denied {
	case 0:
		w.Printf("%s  all %d flows, %s\n", w.Styled(term.Green, "ALLOWED"), len(all), reasons)
	case len(all):
		w.Printf("%s  all %d flows, %s\n", w.Styled(term.Red, "DENIED"), len(all), reasons)
	default:
		w.Printf("%s  %d of %d flows, the others are allowed, %s\n", w.Styled(term.Red, "DENIED"), denied, len(all), reasons)
	}
}

// maxOthers bounds how many flows are listed that an explanation holds for as well.
const maxOthers = 20

func writeOthers(w *term.Writer, others []view.Explanation) {
	if len(others) == 0 {
		return
	}
	w.Printf("  the same holds for:\n")
	t := &term.Table{Indent: "    "}
	for _, e := range others[:min(len(others), maxOthers)] {
		t.Row(e.Src.Name, "->", e.Dst.Name, e.Flow)
	}
	t.Print(w)
	if more := len(others) - maxOthers; more > 0 {
		w.Printf("    and %s more\n", term.Count(more, "flow"))
	}
}
