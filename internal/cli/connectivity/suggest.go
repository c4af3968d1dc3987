package connectivity

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/analysis/graph"
	"github.com/sluice-net/sluice/internal/analysis/matrix"
	"github.com/sluice-net/sluice/internal/analysis/observed"
	"github.com/sluice-net/sluice/internal/bundle"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/view"
)

// suggesting has the options of suggest.
type suggesting struct {
	Host
	observed.Options
	since     time.Duration
	files     []string
	manifests []string
	from      string
	matrix    bool
	timeout   time.Duration
	format    suggestFormat
}

func newSuggest(h Host) *cobra.Command {
	s := &suggesting{Host: h, format: "yaml"}
	cmd := &cobra.Command{
		Use:   "suggest -n NAMESPACE",
		Short: "Propose the least policies that permit the observed traffic of a namespace",
		Long: `Propose NetworkPolicies for the workloads of a namespace, one for each, that permit the flows which
were observed and as little else as selectors of labels allow. They are printed as YAML that can be
applied, with comments: what each rule was observed for, what is not permitted and why, and what the
policies close and open compared with today. Nothing is changed.

Flows are those of verdicts: the ones that the agent has kept (--since; the agent keeps permitted
flows with --verdict-history all), or those of files (-f) as "watch verdicts -o json" prints them,
also of several nodes. Permitted flows count as observed, those of policies in audit mode too.

Pods are named by the labels of their workloads, addresses outside of the cluster by blocks, and
ports by their numbers. The own node of a pod needs no rule. The policies are checked on a copy of
the state: by the specification, flow by flow.

Exit codes: 0 every observed flow is permitted, 1 some are not (they are named), 2 error.`,
		Example: `  sluicectl suggest -n shop
  sluicectl suggest -n shop --since 24h --audit | kubectl apply -f -
  sluicectl watch verdicts -n shop --verdict permit --for 10m -o json > flows.jsonl
  sluicectl suggest -n shop -f flows.jsonl
  sluicectl suggest -n shop -f node-1.jsonl,node-2.jsonl --replace --matrix`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVarP(&s.Namespace, "namespace", "n", "", "the namespace whose workloads get policies")
	f.DurationVar(&s.since, "since", time.Hour, "use verdicts that the agent has kept of the last time, as in 10m; 0: all of them")
	f.StringSliceVarP(&s.files, "filename", "f", nil, `file of verdicts as "watch verdicts -o json" prints them, or - for the standard input, instead of the agent's (repeatable)`)
	f.StringSliceVar(&s.manifests, "manifests", nil, "manifest, or directory of manifests, with the state of the cluster instead of the agent's (repeatable; with -f)")
	f.StringVar(&s.from, "from", "agent", "whose state it is: that of the agent, or of a bundle (see sluicectl bundle; with -f)")
	f.BoolVar(&s.Denied, "include-denied", false, "also permit flows that policies denied when they were seen last")
	f.BoolVar(&s.Portless, "include-portless", false, "also permit ICMP and other protocols without ports, by rules with every port")
	f.BoolVar(&s.Replace, "replace", false, "compare and check as if the other NetworkPolicies of these workloads were deleted")
	f.BoolVar(&s.Audit, "audit", false, "have the policies in audit mode, in which they deny nothing")
	f.BoolVar(&s.matrix, "matrix", false, "also print the matrix after the policies, as comments, with the cells that change marked")
	f.DurationVar(&s.timeout, "timeout", 2*time.Minute, "how long the comparison with today may take")
	f.VarP(&s.format, "output", "o", "output format")
	s.AllowProblems(cmd)
	cmd.MarkFlagsMutuallyExclusive("manifests", "from")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"yaml", "json"}, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	return cmd
}

// suggestFormat is yaml or json.
type suggestFormat string

// Set implements pflag.Value.
func (f *suggestFormat) Set(s string) error {
	if s != "yaml" && s != "json" {
		return errors.New("want yaml or json")
	}
	*f = suggestFormat(s)
	return nil
}

// String implements pflag.Value.
func (f *suggestFormat) String() string { return string(*f) }

// Type implements pflag.Value.
func (f *suggestFormat) Type() string { return "yaml|json" }

func (s *suggesting) run(cmd *cobra.Command) error {
	paths := s.manifests
	if s.from != "agent" {
		if !bundle.Is(s.from) {
			return fmt.Errorf("--from %q: want agent, or the file of a bundle", s.from)
		}
		paths = []string{s.from}
	}
	switch {
	case s.Namespace == "":
		return errors.New("--namespace is needed: the one whose workloads get policies")
	case s.since < 0:
		return fmt.Errorf("--since %s: want a time that is not negative", s.since)
	case len(s.files) > 0 && cmd.Flags().Changed("since"):
		return errors.New("--since is about the verdicts of the agent: leave it out with -f")
	case len(s.files) == 0 && len(s.manifests) > 0:
		return errors.New("--manifests have no verdicts: name a file of them with -f")
	case len(s.files) == 0 && len(paths) > 0:
		return fmt.Errorf("the bundle %s has no verdicts: name a file of them with -f", s.from)
	}
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	today, err := s.Cluster(ctx, cmd.ErrOrStderr(), paths)
	if err != nil {
		return err
	}
	var verdicts observed.Verdicts
	if err := s.read(ctx, &verdicts); err != nil {
		return err
	}
	proposal, err := observed.Suggest(today, &verdicts, s.Options)
	if err != nil {
		if len(s.files) == 0 && errors.Is(err, observed.ErrNothing) {
			err = fmt.Errorf("%w; --since takes verdicts of a longer time, --verdict-history-size of the agent keeps more", err)
		}
		return err
	}
	var drawn *matrix.Matrix
	if drawn, err = s.compare(ctx, cmd.ErrOrStderr(), today, &proposal); err != nil {
		return err
	}
	if err := s.write(&proposal, drawn); err != nil {
		return err
	}
	if len(proposal.Denied)+len(proposal.Left) > 0 {
		return s.Negative
	}
	return nil
}

// compare compares with today, as long as there is time. What was not compared is said.
func (s *suggesting) compare(ctx context.Context, errOut io.Writer, today explain.Manifests, p *observed.Suggestion) (*matrix.Matrix, error) {
	stop := term.Progress(errOut, "compare")
	defer stop()
	timed, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err := p.Compare(timed, today)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		p.Notes = append(p.Notes, fmt.Sprintf("not compared with today, as that takes longer than --timeout %s; that observed flows are permitted was checked", s.timeout))
		return nil, nil
	}
	if err != nil || !s.matrix {
		return nil, err
	}
	m, err := graph.Marked(timed, today, p.After(), matrix.Selection{Namespace: s.Namespace})
	return &m, err
}

func (s *suggesting) write(p *observed.Suggestion, m *matrix.Matrix) error {
	if s.format == "json" {
		enc := json.NewEncoder(term.JSON(s.Out))
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(struct {
			*observed.Suggestion
			Matrix *matrix.Matrix `json:"matrix,omitempty"`
		}{p, m})
	}
	w := term.NewWriter(s.Out)
	w.SetWidth(0)
	p.Write(w)
	if m == nil || w.Err() != nil {
		return w.Err()
	}
	var drawn strings.Builder
	plain := term.NewWriter(&drawn)
	m.Write(plain)
	for line := range strings.SplitSeq(strings.TrimRight(drawn.String(), "\n"), "\n") {
		w.Printf("# %s\n", term.Text(strings.TrimRight(line, " ")))
	}
	return cmp.Or(plain.Err(), w.Err())
}

// read reads the verdicts of files, or of the agent.
func (s *suggesting) read(ctx context.Context, v *observed.Verdicts) error {
	for _, path := range s.files {
		if err := s.readFile(path, v); err != nil {
			return err
		}
	}
	if len(s.files) > 0 {
		return nil
	}
	q := view.Watch{Action: view.WatchAll, Since: s.since, Past: true, WatchSide: view.WatchSide{Namespace: s.Namespace}}
	err := s.Stream(ctx, "/v1/verdicts", q, true, func() {}, func(line json.RawMessage) error { return v.AddLine(line) })
	if err != nil {
		return fmt.Errorf("verdicts of the agent: %w", err)
	}
	return nil
}

func (s *suggesting) readFile(path string, v *observed.Verdicts) error {
	if path == "-" {
		return v.Read(s.In, "standard input")
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(v.Read(f, path), f.Close())
}
