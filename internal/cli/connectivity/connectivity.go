// Package connectivity has the commands of sluicectl that show who can talk to whom: as a matrix,
// as a graph, and on a page.
package connectivity

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/analysis/graph"
	"github.com/sluice-net/sluice/internal/analysis/matrix"
	"github.com/sluice-net/sluice/internal/bundle"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/view"
)

// Host is what the commands need of sluicectl.
type Host struct {
	In  io.Reader
	Out io.Writer
	// Negative is the error of a command that was successful, and whose answer is no.
	Negative error
	// Output is the flag of formats that are no pictures, in which Print prints a value.
	Output pflag.Value
	Print  func(value any, table func(*term.Writer)) error
	// Cluster reads the state of manifests or of a bundle, or that of the agent where there are no
	// paths. What is wrong in it is written to errOut.
	Cluster func(ctx context.Context, errOut io.Writer, paths []string) (explain.Manifests, error)
	// Changed returns a state with the objects of files, and without those of others.
	Changed func(errOut io.Writer, files, gone []string, before explain.Manifests) (explain.Manifests, error)
	// Get asks the agent, or one of a cluster. Explain asks those of both ends of a flow. Stream asks all
	// for answers until each returns an error or, with last, they have no more.
	Get     func(ctx context.Context, path string, out any) error
	Explain func(ctx context.Context, q view.Question) ([]view.Explanation, error)
	Stream  func(ctx context.Context, path string, question any, last bool, begun func(), each func(json.RawMessage) error) error
	// Patient has a command wait so long for an answer, unless the command line says how long; 0 is
	// any time.
	Patient func(cmd *cobra.Command, d time.Duration)
	// AllowProblems adds the flag with which problems of the manifests that Cluster reads are no
	// error.
	AllowProblems func(cmd *cobra.Command)
}

// Commands returns the commands.
func Commands(h Host) []*cobra.Command {
	return []*cobra.Command{newMatrix(h), newGraph(h), newUI(h), newSuggest(h)}
}

// pictures are the formats that package graph draws.
var pictures = []string{"svg", "dot", "mermaid", "html"}

// format is a picture, or a format of all commands.
type format struct {
	pflag.Value
	picture string
}

// Set implements pflag.Value.
func (f *format) Set(s string) error {
	f.picture = ""
	if slices.Contains(pictures, s) {
		f.picture = s
		return nil
	}
	if err := f.Value.Set(s); err != nil {
		return fmt.Errorf("want %s, table, json or yaml", strings.Join(pictures, ", "))
	}
	return nil
}

// String implements pflag.Value.
func (f *format) String() string {
	if f.Value == nil { // pflag asks a zero value
		return ""
	}
	return cmp.Or(f.picture, f.Value.String())
}

// Type implements pflag.Value.
func (f *format) Type() string { return "svg|dot|mermaid|html|json|yaml" }

// run has the options of a command.
type run struct {
	Host
	manifests   []string
	selection   matrix.Selection
	diff, gone  []string
	output      format
	open        bool
	denied      bool
	errOut      io.Writer
	aboutChange bool
}

// flags adds the flags that matrix and graph have in common.
func (r *run) flags(cmd *cobra.Command) {
	r.output.Value = r.Output
	f := cmd.Flags()
	f.StringVarP(&r.selection.Namespace, "namespace", "n", "", "only pairs of which one end is in this namespace")
	f.StringSliceVar(&r.selection.From, "from", nil, "only these sources (repeatable): NAMESPACE, NAMESPACE/GROUP, internet or a block; the file of a bundle: its state instead of the agent's")
	f.StringSliceVar(&r.selection.To, "to", nil, "only these destinations (repeatable)")
	f.StringSliceVar(&r.manifests, "manifests", nil, "manifest, directory of manifests, or - for the standard input, to judge instead of asking an agent (repeatable)")
	r.AllowProblems(cmd)
	f.StringSliceVar(&r.diff, "diff", nil, "manifest, or directory of manifests, with the objects of a change: shows what it opens and closes (repeatable)")
	f.StringSliceVar(&r.gone, "delete", nil, "manifest, or directory of manifests, with objects that the change deletes (repeatable)")
	f.VarP(&r.output, "output", "o", "output format")
}

// begin reads the flags.
func (r *run) begin(cmd *cobra.Command) (err error) {
	r.Patient(cmd, 0) // packet by packet, it takes as long as there are pods and ports
	r.errOut, r.aboutChange = cmd.ErrOrStderr(), len(r.diff)+len(r.gone) > 0
	r.manifests, err = bundleIn(r.manifests, &r.selection)
	return err
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
	if len(s.From) == 0 {
		s.From = nil // as if the flag were not given
	}
	if len(bundles) > 1 || len(bundles) > 0 && len(manifests) > 0 {
		return nil, errors.New("--from and --manifests: want one state, of an agent, a bundle or manifests")
	}
	return append(manifests, bundles...), nil
}

// states returns the state, and what the change makes of it.
func (r *run) states(ctx context.Context) (before, after explain.Manifests, err error) {
	if before, err = r.Cluster(ctx, r.errOut, r.manifests); err == nil {
		after, err = r.Changed(r.errOut, r.diff, r.gone, before)
	}
	return before, after, err
}

// change compares the state with what the change makes of it.
func (r *run) change(ctx context.Context) (graph.Change, error) {
	before, after, err := r.states(ctx)
	if err != nil {
		return graph.Change{}, err
	}
	stop := term.Progress(r.errOut, "compare")
	defer stop()
	return graph.Compute(ctx, before, after, r.selection)
}

// title names a picture.
const title = "Who can talk to whom"

func newMatrix(h Host) *cobra.Command {
	r := &run{Host: h}
	cmd := &cobra.Command{
		Use:   "matrix",
		Short: "Show who can talk to whom, asked packet by packet of the dataplane",
		Long: `Show which groups of pods, blocks and the world outside can talk to which, on the ports that the
pods declare. Every cell is asked packet by packet of the embedded dataplane, and compared with the
specification. With --manifests no agent is asked: the dataplane has all pods of the manifests, on
one node.

-n, --from and --to ask about less: a namespace, a group as the matrix shows it, or what is outside.
A matrix that does not fit the terminal, or has more than 60 groups, is grouped by namespace, but
for what they name.

--diff and --delete name manifests of a change. The matrix is then that of the state after it, by
the specification, with the cells that it changes marked.

-o svg and html draw the matrix, dot and mermaid the same as a graph.`,
		Example: `  sluicectl matrix
  sluicectl matrix -n shop --open
  sluicectl matrix --from shop/web,internet --to data
  sluicectl matrix --manifests docs/examples/shop -o json
  sluicectl matrix --from node-1.tgz -n shop
  sluicectl matrix --diff policy.yaml -o html > change.html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := r.begin(cmd); err != nil {
				return err
			}
			if r.aboutChange {
				return r.changedMatrix(cmd.Context())
			}
			m, err := r.whoCanTalk(cmd.Context())
			if err != nil {
				return err
			}
			if r.output.picture != "" {
				return r.drawMatrix(m.Matrix, graph.New(m.Matrix, graph.Options{}))
			}
			return r.Print(m, func(w *term.Writer) {
				m.Write(w)
				w.Printf("%s sent; %s\n", term.Count(m.Probes, "packet"), agreement(w, m.Differ))
				r.writeOpen(w, m.Matrix)
			})
		},
	}
	cmd.Flags().BoolVar(&r.open, "open", false, "also list in words what is open")
	r.flags(cmd)
	return cmd
}

func (r *run) writeOpen(w *term.Writer, m matrix.Matrix) {
	if r.open {
		w.Printf("\n")
		m.WriteOpen(w)
	}
}

func (r *run) changedMatrix(ctx context.Context) error {
	if r.output.picture == "dot" || r.output.picture == "mermaid" { // they say on which ports
		c, err := r.change(ctx)
		if err != nil {
			return err
		}
		return r.draw(graph.Compare(c.Was, c.Is, c.Differences, graph.Options{}))
	}
	before, after, err := r.states(ctx)
	if err != nil {
		return err
	}
	stop := term.Progress(r.errOut, "compare")
	m, err := graph.Marked(ctx, before, after, r.selection)
	if stop(); err != nil {
		return err
	}
	if r.output.picture != "" {
		return r.drawMatrix(m, graph.Graph{})
	}
	return r.Print(m, func(w *term.Writer) {
		m.Write(w)
		r.writeOpen(w, m)
	})
}

func (r *run) drawMatrix(m matrix.Matrix, g graph.Graph) error {
	switch r.output.picture {
	case "svg":
		return graph.MatrixSVG(r.Out, m)
	case "html":
		return graph.MatrixHTML(r.Out, m, title)
	}
	return r.draw(g)
}

func (r *run) draw(g graph.Graph) error {
	switch r.output.picture {
	case "svg":
		return g.SVG(r.Out)
	case "dot":
		return g.DOT(r.Out)
	case "mermaid":
		return g.Mermaid(r.Out)
	}
	return g.HTML(r.Out, title)
}

// whoCanTalk asks the agent, or what the manifests describe.
func (r *run) whoCanTalk(ctx context.Context) (m view.Matrix, err error) {
	if len(r.manifests) == 0 {
		q := url.Values{"from": r.selection.From, "to": r.selection.To}
		if r.selection.Namespace != "" {
			q.Set("namespace", r.selection.Namespace)
		}
		err = r.Get(ctx, "/v1/matrix?"+q.Encode(), &m)
		return m, err
	}
	described, err := r.Cluster(ctx, r.errOut, r.manifests)
	if err != nil {
		return m, err
	}
	return described.Matrix(ctx, r.selection)
}

// agreement reports whether the dataplane does what the specification says.
func agreement(w *term.Writer, differ int) term.Text {
	if differ == 0 {
		return w.Styled(term.Green, "every verdict is that of the specification")
	}
	return w.Styled(term.Red, term.Count(differ, "verdict")+" not as the specification says: see \"sluicectl get status\"")
}

func newGraph(h Host) *cobra.Command {
	r := &run{Host: h}
	cmd := &cobra.Command{
		Use:   "graph",
		Short: "Draw who can talk to whom: SVG, DOT, Mermaid or HTML",
		Long: `Draw workloads, their namespaces and what is outside, with an edge where something is allowed.
Verdicts are those of the specification, on the ports that pods declare or policies name, so that
no embedded dataplane is needed. An edge of a whole namespace stands for all of its workloads.
With more than 60 workloads the graph has namespaces, but for what -n, --from and --to name.

The state is that of the agent, of manifests (--manifests), or of a bundle (--from).
--diff and --delete name manifests of a change: the graph shows what it opens and closes, exactly,
and what stays allowed.

svg and html have a light and a dark style and load nothing. html has the same as a table, too.
dot is for graphviz, mermaid for Markdown. Without -o the edges are printed as a table.`,
		Example: `  sluicectl graph
  sluicectl graph -n shop -o svg > shop.svg
  sluicectl graph --manifests docs/examples/shop -o mermaid
  sluicectl graph --diff policy.yaml -o html > change.html
  sluicectl graph --from node-1.tgz -o dot | dot -Tpng > node-1.png`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := r.begin(cmd); err != nil {
				return err
			}
			g, err := r.graph(cmd.Context())
			if err != nil {
				return err
			}
			if r.output.picture != "" {
				return r.draw(g)
			}
			return r.Print(g, g.Write)
		},
	}
	cmd.Flags().BoolVar(&r.denied, "denied", false, "also edges where everything is denied")
	r.flags(cmd)
	return cmd
}

func (r *run) graph(ctx context.Context) (graph.Graph, error) {
	o := graph.Options{Denied: r.denied}
	if r.aboutChange {
		c, err := r.change(ctx)
		return graph.Compare(c.Was, c.Is, c.Differences, o), err
	}
	m, err := r.Cluster(ctx, r.errOut, r.manifests)
	if err != nil {
		return graph.Graph{}, err
	}
	cells, err := graph.Matrix(m, r.selection)
	return graph.New(cells, o), err
}
