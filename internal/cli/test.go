package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/policytest"
	"github.com/sluice-net/sluice/internal/term"
)

// subjects are what --through can name.
var subjects = map[string]func() policytest.Subject{
	"oracle":  func() policytest.Subject { return policytest.NewOracle() },
	"acl":     func() policytest.Subject { return policytest.NewFabric(slog.New(slog.DiscardHandler)) },
	"session": func() policytest.Subject { return policytest.NewHostStack(slog.New(slog.DiscardHandler)) },
	"xdp":     func() policytest.Subject { return policytest.NewXDPFabric(slog.New(slog.DiscardHandler)) },
}

func newTest(o *options) *cobra.Command {
	var through []string
	cmd := &cobra.Command{
		Use:   "test FILE...",
		Short: "Run policy unit tests",
		Long: `Run policy unit tests: files with Kubernetes objects, steps that change them, and probes with the verdict that is
expected. No agent and no cluster is needed.

--through chooses who answers: "oracle" is the specification itself; "acl" is the whole pipeline with the ACL renderer,
whose installed tables are asked packet by packet in the embedded dataplane; "session" is the same with the renderer of
session rules, asked connection by connection, and not about what is neither TCP nor UDP; "xdp" is the pipeline with the
XDP renderer, whose memory is read as its program in the kernel reads it. Steps are applied to what runs.

Exit codes: 0 all verdicts are as expected, 1 some are not, 2 a test could not be run.`,
		Example: `  sluicectl test docs/examples/tests/shop.yaml
  sluicectl test --through oracle,acl policies/*.test.yaml -o json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.runTests(cmd.Context(), args, through)
		},
	}
	cmd.Flags().StringSliceVar(&through, "through", []string{"oracle", "acl"}, "who answers: oracle, acl, session, xdp")
	return cmd
}

// runTests runs every file through fresh subjects, so that files do not depend on
// each other.
func (o *options) runTests(ctx context.Context, paths, through []string) error {
	for _, name := range through {
		if subjects[name] == nil {
			return fmt.Errorf("--through %s: want oracle, acl, session or xdp", name)
		}
	}
	reports := []policytest.Report{}
	var unread []error // of files; what went wrong in a test is in its report
	broken := 0
	for _, path := range paths {
		files, err := policytest.Load(path, o.in)
		if err != nil {
			unread = append(unread, err)
			broken++
		}
		for _, f := range files {
			r, err := runTest(ctx, f, through)
			reports = append(reports, r)
			if err != nil {
				broken++
			}
		}
	}
	err := o.output.print(o.out, reports, func(w *term.Writer) {
		for _, r := range reports {
			r.Write(w)
		}
	})
	return errors.Join(append(unread, err, outcome(reports, broken))...)
}

func runTest(ctx context.Context, f *policytest.File, through []string) (policytest.Report, error) {
	var asked []policytest.Subject
	for _, name := range through {
		asked = append(asked, subjects[name]())
	}
	report, err := policytest.Run(ctx, f, asked, policytest.Options{})
	for _, s := range asked {
		err = errors.Join(err, s.Close())
	}
	return report, err
}

// outcome is an error when tests could not be run, and errNegative when all ran and
// some failed.
func outcome(reports []policytest.Report, broken int) error {
	if broken > 0 {
		return fmt.Errorf("%s could not be run as written", term.Count(broken, "test"))
	}
	for _, r := range reports {
		if !r.OK() {
			return errNegative
		}
	}
	return nil
}
