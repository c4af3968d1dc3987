package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/analysis/preview"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/manifests"
)

// diffRun has the options of diff.
type diffRun struct {
	files, gone []string // changed, and deleted
	base        []string // manifests, or a bundle; none: the agent
	failOn      []string
	options     preview.Options
	aclMemory   uint32 // MiB
	memory      uint32 // MiB
	output      diffFormat
	timeout     time.Duration
}

// causes are the values of --fail-on.
var causes = []string{"opened", "closed", "memory"}

func newDiff(o *options) *cobra.Command {
	d := diffRun{output: diffFormat{format: formatTable}, failOn: causes}
	cmd := &cobra.Command{
		Use:   "diff [DIR1 DIR2]",
		Short: "Preview a change of policies: which flows it permits or denies, and its cost",
		Long: `Show the effects of a change of policies before it is made: which flows it permits (opened) or
denies (closed), by whose rules, and how much work and memory it takes on each node. Nothing is
changed.

The state before the change is that of the agent, of manifests (--manifests), or of a bundle
(--from). -f names manifests of new and changed objects, --delete those of deleted ones. With two
directories as arguments, the manifests of the first are compared with those of the second.

Verdicts are those of the specification. Each kind of flow that differs is also sent through the
dataplanes of the nodes (--renderers), before and after the change; if a dataplane disagrees with
the specification, that is an error. Memory is that of rules in VPP, which --acl-memory limits, and
in the kernel, which --policy-memory limits.

Exit codes: 0 nothing differs, 1 something does (of what --fail-on names), 2 error.`,
		Example: `  sluicectl diff -f policy.yaml
  sluicectl diff -f policy.yaml --manifests docs/examples/shop
  sluicectl diff --delete policy.yaml --from bundle.tgz
  sluicectl diff main/policies branch/policies -o markdown --fail-on opened`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.diff(cmd.Context(), cmd.ErrOrStderr(), args, d)
		},
	}
	f := cmd.Flags()
	f.StringSliceVarP(&d.files, "filename", "f", nil, "manifest, directory of manifests, or - for the standard input, with the objects that change (repeatable)")
	f.StringSliceVar(&d.gone, "delete", nil, "manifest, or directory of manifests, with the objects that are deleted (repeatable)")
	o.manifestsFlag(cmd, &d.base)
	f.StringSliceVar(&d.options.Renderers, "renderers", preview.Renderers, "dataplanes to try the change in: acl, xdp; empty: none")
	f.StringSliceVar(&d.failOn, "fail-on", d.failOn, "what makes the exit code 1: opened, closed, memory (rules that do not fit)")
	f.Uint32Var(&d.aclMemory, "acl-memory", 0, "MiB that rules may take in VPP; 0: no limit")
	f.Uint32Var(&d.memory, "policy-memory", 128, "MiB that rules may take in the kernel; 0: no limit")
	f.BoolVar(&d.options.AllNodes, "all-nodes", false, "compute all nodes, also when there are more than 24")
	f.DurationVar(&d.timeout, "timeout", 2*time.Minute, "how long the comparison may take")
	f.VarP(&d.output, "output", "o", "output format")
	return cmd
}

// diffFormat is a format, or Markdown.
type diffFormat struct {
	format
	markdown bool
}

// Set implements pflag.Value.
func (f *diffFormat) Set(s string) error {
	if f.markdown = s == "markdown"; f.markdown {
		return nil
	}
	if f.format.Set(s) != nil {
		return errors.New("want table, markdown, json or yaml")
	}
	return nil
}

// Type implements pflag.Value.
func (f *diffFormat) Type() string { return "table|markdown|json|yaml" }

func (o *options) diff(ctx context.Context, errOut io.Writer, args []string, d diffRun) error {
	for _, cause := range d.failOn {
		if !slices.Contains(causes, cause) {
			return fmt.Errorf("--fail-on %q: want %s", cause, strings.Join(causes, ", "))
		}
	}
	d.options.Renderers = slices.DeleteFunc(d.options.Renderers, func(s string) bool { return s == "" })
	d.options.ACLMemory, d.options.PolicyMemory = uint64(d.aclMemory)<<20, uint64(d.memory)<<20
	before, after, err := o.states(ctx, errOut, args, &d)
	if err != nil {
		return err
	}
	stop := term.Progress(errOut, "compare")
	timed, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	r, err := preview.Compare(timed, before, after, d.options)
	if stop(); errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the comparison took longer than --timeout %s: preview the change in parts, or give it more time", d.timeout)
	}
	if err != nil {
		return err
	}
	if d.output.markdown {
		w := term.NewWriter(o.out)
		r.Markdown(w)
		err = w.Err()
	} else {
		err = d.output.print(o.out, r, r.Write)
	}
	if err == nil && len(r.Disagreements) > 0 {
		err = errors.New("a dataplane does not do what the specification says: please report this")
	}
	if err != nil {
		return err
	}
	return d.outcome(r)
}

// outcome is errNegative where something differs that makes the command fail.
func (d diffRun) outcome(r preview.Report) error {
	for _, cause := range d.failOn {
		if cause == "opened" && r.Opens() || cause == "closed" && r.Closes() || cause == "memory" && !r.Fits() {
			return errNegative
		}
	}
	return nil
}

// states returns the cluster before the change, and after it.
func (o *options) states(ctx context.Context, errOut io.Writer, args []string, d *diffRun) (before, after explain.Manifests, err error) {
	switch isChange := len(d.files)+len(d.gone) > 0; {
	case len(args) == 2 && (isChange || len(d.base) > 0):
		return before, after, errors.New("two directories are the states before and after: leave out -f, --delete, --manifests and --from")
	case len(args) == 2:
		return o.directories(errOut, args)
	case len(args) == 1:
		return before, after, fmt.Errorf("diff compares two directories: %q is one; name the change with -f", args[0])
	case !isChange:
		return before, after, errors.New("-f or --delete is needed: the manifests of the change; or name two directories")
	}
	if before, err = o.cluster(ctx, errOut, d.base); err != nil {
		return before, after, err
	}
	after, err = o.withChange(errOut, d.files, d.gone, before)
	return before, after, err
}

// withChange returns a state with the objects of files, and without those of others.
func (o *options) withChange(errOut io.Writer, files, deleted []string, before explain.Manifests) (explain.Manifests, error) {
	change, err := o.changed(errOut, files)
	if err != nil {
		return explain.Manifests{}, err
	}
	gone, err := o.goneOf(errOut, deleted, before)
	if err != nil {
		return explain.Manifests{}, err
	}
	return before.With(change, gone), nil
}

// directories reads two states. What is wrong in both is noted; what is wrong in the second alone
// is an error.
func (o *options) directories(errOut io.Writer, args []string) (before, after explain.Manifests, err error) {
	before, known, err := o.manifestsOf(args[:1])
	if err != nil {
		return before, after, err
	}
	after, problems, err := o.manifestsOf(args[1:])
	if err != nil {
		return before, after, err
	}
	isKnown := func(p api.Problem) bool {
		return slices.ContainsFunc(known, func(k api.Problem) bool { return k.Object == p.Object && k.Field == p.Field && k.Reason == p.Reason })
	}
	return before, after, errors.Join(o.leaveOut(errOut, known), problemsError(slices.DeleteFunc(problems, isKnown)))
}

// changed reads the objects of a change, which must be right.
func (o *options) changed(errOut io.Writer, paths []string) (explain.Manifests, error) {
	if len(paths) == 0 {
		return explain.Manifests{}, nil
	}
	load, err := o.load(errOut, paths)
	if err != nil {
		return explain.Manifests{}, err
	}
	m, problems := explain.FromManifests(load, slog.New(slog.DiscardHandler))
	return m, problemsError(problems)
}

// goneOf returns the objects that manifests name, all of which the cluster must have.
func (o *options) goneOf(errOut io.Writer, paths []string, before explain.Manifests) (gone []model.ID, err error) {
	if len(paths) == 0 {
		return nil, nil
	}
	load, err := o.load(errOut, paths)
	if err != nil {
		return nil, err
	}
	there := map[model.ID]bool{}
	for _, id := range before.IDs() {
		there[id] = true
	}
	for _, obj := range load.Objects {
		if id := obj.ID(); !there[id] {
			return nil, fmt.Errorf("--delete: %s is not there", id)
		}
		gone = append(gone, obj.ID())
	}
	return gone, problemsError(load.Problems)
}

// load reads manifests of which something must be of use.
func (o *options) load(errOut io.Writer, paths []string) (manifests.Load, error) {
	load, err := manifests.LoadFiles(paths, o.in)
	if err != nil {
		return load, err
	}
	w := term.NewWriter(errOut)
	writeSkipped(w, load.Skipped)
	return load, errors.Join(w.Err(), (&changeFlags{files: paths}).hasObjects(load))
}

func writeProblems(w *term.Writer, problems []api.Problem) {
	for _, p := range problems {
		w.Printf("%s\n", w.Styled(term.Red, "problem: "+p.Error()))
	}
}

// problemsError returns an error with the problems in the manifests of a change, nil if there are
// none.
func problemsError(problems []api.Problem) error {
	var errs []error
	for _, p := range problems[:min(len(problems), maxSkipped)] {
		errs = append(errs, p)
	}
	if more := len(problems) - maxSkipped; more > 0 {
		errs = append(errs, fmt.Errorf("and %s more", term.Count(more, "problem")))
	}
	return errors.Join(errs...)
}
