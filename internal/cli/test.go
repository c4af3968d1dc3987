package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/analysis/policytest"
	"github.com/sluice-net/sluice/internal/lib/term"
)

// subjects are what --through can name.
var subjects = map[string]func() policytest.Subject{
	"oracle":  func() policytest.Subject { return policytest.NewOracle() },
	"acl":     func() policytest.Subject { return policytest.NewFabric(slog.New(slog.DiscardHandler)) },
	"session": func() policytest.Subject { return policytest.NewHostStack(slog.New(slog.DiscardHandler)) },
	"xdp":     func() policytest.Subject { return policytest.NewXDPFabric(slog.New(slog.DiscardHandler)) },
}

func newTest(o *options) *cobra.Command {
	var run testRun
	cmd := &cobra.Command{
		Use:   "test FILE...",
		Short: "Run policy unit tests",
		Long: `Run policy unit tests: files with Kubernetes objects, steps that change them, and probes with the
verdict that is expected. No agent and no cluster is needed.

--through chooses who answers: "oracle" is the specification itself; "acl" is the whole pipeline
with the ACL renderer, whose installed tables are asked packet by packet in the embedded dataplane;
"session" is the same with the renderer of session rules, asked connection by connection, and not
about what is neither TCP nor UDP; "xdp" is the pipeline with the XDP renderer, whose memory is read
as its program in the kernel reads it. Steps are applied to what runs.

Each test is reported as soon as it has ended. One that takes longer than --timeout, or that a
dataplane refuses because of a limit, cannot be run; the others go on.

Exit codes: 0 all verdicts are as expected, 1 some are not, 2 a test could not be run.`,
		Example: `  sluicectl test docs/examples/tests/shop.yaml
  sluicectl test --through oracle,acl policies/*.test.yaml -o json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			run.notes = cmd.ErrOrStderr()
			return o.runTests(cmd.Context(), args, run)
		},
	}
	cmd.Flags().StringSliceVar(&run.through, "through", []string{"oracle", "acl"}, "who answers: oracle, acl, session, xdp")
	cmd.Flags().DurationVar(&run.timeout, "timeout", time.Minute, "how long one test may take; 0: no limit")
	return cmd
}

// testRun is how tests are run.
type testRun struct {
	through []string
	timeout time.Duration // of each test
	notes   io.Writer     // where progress is shown
}

// runTests runs every test through fresh subjects, so that tests do not depend on each
// other. For people, each is reported as soon as it has ended.
func (o *options) runTests(ctx context.Context, paths []string, run testRun) error {
	for _, name := range run.through {
		if subjects[name] == nil {
			return fmt.Errorf("--through %s: want oracle, acl, session or xdp", name)
		}
	}
	begin := time.Now()
	var files []*policytest.File
	var unread []error // of files; what went wrong in a test is in its report
	for _, path := range paths {
		some, err := policytest.Load(path, o.in)
		files = append(files, some...)
		if err != nil {
			unread = append(unread, err)
		}
	}
	reports, live := []policytest.Report{}, term.NewWriter(o.out)
	for i, f := range files {
		stop := term.Progress(run.notes, fmt.Sprintf("test %d of %d: %s", i+1, len(files), f.Name))
		r := run.test(ctx, f)
		stop()
		if reports = append(reports, r); o.output.isForPeople() {
			r.Write(live)
		}
		if live.Err() != nil {
			return live.Err()
		}
	}
	var err error
	if o.output.isForPeople() {
		policytest.WriteTotal(live, reports, len(unread), time.Since(begin))
		err = live.Err()
	} else {
		err = o.output.print(o.out, reports, nil)
	}
	return errors.Join(append(unread, err, outcome(reports, len(unread)))...)
}

// test runs one test. Its report has the errors.
func (run testRun) test(ctx context.Context, f *policytest.File) policytest.Report {
	var asked []policytest.Subject
	for _, name := range run.through {
		asked = append(asked, subjects[name]())
	}
	report, _ := policytest.Run(ctx, f, asked, policytest.Options{Timeout: run.timeout})
	for _, s := range asked {
		if err := s.Close(); err != nil {
			report.Errors = append(report.Errors, fmt.Sprintf("close %s: %v", s.Name(), err))
		}
	}
	return report
}

// outcome is an error when tests could not be run, and errNegative when all ran and
// some failed.
func outcome(reports []policytest.Report, unread int) error {
	broken, failed := unread, false
	for _, r := range reports {
		if failed = failed || !r.OK(); len(r.Errors) > 0 {
			broken++
		}
	}
	switch {
	case broken > 0:
		return fmt.Errorf("%s could not be run as written", term.Count(broken, "test"))
	case failed:
		return errNegative
	}
	return nil
}
