package traffic

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/lib/settings"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/view"
)

// NewWatch returns the command that follows what happens on a node.
func (s *Shell) NewWatch() *cobra.Command {
	cmd := &cobra.Command{
		Use: "watch", Short: "Follow events of a node: verdicts of packets", Example: "  sluicectl watch verdicts -n shop",
		Args: cobra.ArbitraryArgs, RunE: settings.OneOf,
	}
	cmd.AddCommand(s.newWatchVerdicts())
	return cmd
}

// watching is a run of watch verdicts.
type watching struct {
	*Shell
	filters
	count  int
	period time.Duration
	follow bool
	seen   int
}

func (s *Shell) newWatchVerdicts() *cobra.Command {
	f := watching{Shell: s}
	cmd := &cobra.Command{
		Use:   "verdicts [POD]",
		Short: "Follow packets that are dropped, or that begin permitted flows, with their policies",
		Long: `Follow verdicts of packets at the interfaces of the node's pods: which packets are dropped, by which
rule of which policy, or for which other reason. --verdict permit or all also reports the packets
that begin flows. --since begins with verdicts that the agent has kept (those of denied packets,
unless its --verdict-history is set); with --follow=false it also ends with them.

A verdict must match all filters, and the agent applies them. POD is the same as --pod.

Not every packet is reported. In the kernel each processor reports a limited number per second
(--xdp-events of the agent), of which the agent may take a sample (--xdp-sample). VPP counts packets
by rule: a line is about all packets that a rule decided in a second, and has no addresses unless
--vpp-traces of the agent samples packets. A line has the number of packets that were left out
before it.

In a cluster all nodes are followed, or those of --node. If an agent restarts, the command
reconnects for a minute. With -o json each verdict is a line, with -o yaml a document.`,
		Example: `  sluicectl watch verdicts
  sluicectl watch verdicts -n shop web --verdict all
  sluicectl watch verdicts --from-label app=web --to-namespace data --port 5432
  sluicectl watch verdicts --policy data/default-deny --direction ingress
  sluicectl watch verdicts --peer 198.51.100.0/24 --protocol tcp --for 1m
  sluicectl watch verdicts --since 10m --follow=false -o json`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return s.Pods(cmd, f.Namespace)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if f.either.pod != "" {
					return errors.New("POD and --pod are the same: leave one of them out")
				}
				f.either.pod = args[0]
			}
			f.Past = !f.follow
			if err := f.read(); err != nil {
				return err
			}
			return f.run(cmd.Context())
		},
	}
	f.register(cmd, view.WatchDenied)
	flags := cmd.Flags()
	flags.DurationVar(&f.Since, "since", 0, "begin with kept verdicts of this last time, as in 10m; 0: only new ones")
	flags.BoolVar(&f.follow, "follow", true, "go on with new verdicts; =false: end after the kept ones")
	flags.IntVar(&f.count, "count", 0, "end after this number of verdicts; 0: never")
	flags.DurationVar(&f.period, "for", 0, "end after this time; 0: never")
	return cmd
}

// errEnough ends a stream of which enough was seen.
var errEnough = errors.New("enough was seen")

// run prints verdicts until the limit is reached, or the reader closes the output.
func (f *watching) run(ctx context.Context) error {
	ctx, stop := interruptible(ctx, f.period)
	defer stop()
	agents, err := f.Agents(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := &lines{watching: f, printer: f.printer(), end: cancel}
	errs := make([]error, len(agents))
	var followed sync.WaitGroup
	for i, a := range agents {
		followed.Go(func() {
			if errs[i] = f.watch(ctx, a, out); errs[i] != nil && len(agents) > 1 {
				f.Lose(a, errs[i])
			}
		})
	}
	followed.Wait()
	if out.broken != nil && !errors.Is(out.broken, errEnough) {
		return out.broken
	}
	if len(agents) == 1 {
		return errs[0]
	}
	return nil
}

// watch follows the verdicts of an agent.
func (f *watching) watch(ctx context.Context, agent Agent, out *lines) error {
	q := f.Watch
	ask := func(worked func()) error {
		err := agent.Stream(ctx, "/v1/verdicts", q, f.Past, func() {
			worked()
			out.begin()
		}, func(line json.RawMessage) error { return out.print(agent, line) })
		q.Since = 0 // what was kept has been printed
		if out.isBroken() {
			return nil
		}
		return err
	}
	if f.Past {
		return ask(func() {})
	}
	return f.Follow(ctx, agent, ask)
}

// lines prints the verdicts of all agents.
type lines struct {
	*watching
	printer
	end context.CancelFunc

	mu     sync.Mutex
	headed bool
	broken error // of what is written, or was read
}

func (l *lines) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.headed {
		l.heading()
	}
	l.headed = true
}

func (l *lines) isBroken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken != nil
}

// print prints a verdict. What an agent says wrongly is an error of that agent; what cannot be written
// ends all.
func (l *lines) print(a Agent, line json.RawMessage) error {
	v, err := verdictIn(a, line)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		l.broken = l.write(v)
	}
	if l.seen++; l.broken == nil && l.seen == l.count {
		l.broken = errEnough
	}
	if l.broken != nil {
		l.end()
	}
	return l.broken
}

// verdictIn reads a verdict of an agent.
func verdictIn(a Agent, line json.RawMessage) (view.PacketVerdict, error) {
	var v struct {
		view.PacketVerdict
		view.WatchEnd
	}
	if err := json.Unmarshal(line, &v); err != nil {
		return v.PacketVerdict, fmt.Errorf("cannot parse the agent's verdict (another version?): %w", err)
	}
	if v.Error != "" {
		return v.PacketVerdict, errors.New(v.Error)
	}
	v.Node = cmp.Or(a.NodeName(), v.Node)
	return v.PacketVerdict, nil
}

// printer writes the heading, and verdicts, in the wanted format.
type printer struct {
	heading func()
	write   func(view.PacketVerdict) error
}

func (s *Shell) printer() printer {
	w := term.NewWriter(s.Out)
	heading := fmt.Sprintf("%-12s  %-6s  %-7s  %-60s  %s", "TIME", "VERDICT", "AT", "FLOW", "WHY")
	written, err := s.Lines(nil)
	return printer{
		heading: func() {
			if !written && err == nil {
				w.Printf("%s\n", w.Styled(term.Faint, heading))
			}
		},
		write: func(v view.PacketVerdict) error {
			if written, err := s.Lines(v); written || err != nil {
				return err
			}
			writeVerdict(w, v, s.Wide())
			return w.Err()
		},
	}
}

func writeVerdict(w *term.Writer, v view.PacketVerdict, wide bool) {
	if v.Missed > 0 {
		w.Printf("%s\n", w.Styled(term.Amber, fmt.Sprintf("... %d packets not reported", v.Missed)))
	}
	style := term.Green
	if v.Action == api.Deny {
		style = term.Red
	}
	action := w.Styled(style, fmt.Sprintf("%-7s", v.Action))
	w.Printf("%s  %s  %-7s  %-60s  %s\n", v.Time.Local().Format("15:04:05.000"), action, v.Direction, flowOf(v), whyOf(v))
	if wide {
		w.Printf("  at interface %d of %s, %d bytes; %s %s -> %s\n", v.Interface, dash(v.Pod.String()), v.Bytes, dash(v.Table), v.Flow.Src, v.Flow.Dst)
	}
}

// flowOf names both ends of a flow or, where packets are only counted, how many there were and at
// whose interface.
func flowOf(v view.PacketVerdict) string {
	if v.Packets > 0 {
		return fmt.Sprintf("%s at %s", term.Count(int(min(v.Packets, 1<<53)), "packet"), atOf(v.Pod, v.Table))
	}
	return fmt.Sprintf("%s -> %s %s", endOf(v.Src, v.Flow.SrcPort, v.Flow.Protocol), endOf(v.Dst, v.Flow.DstPort, v.Flow.Protocol), v.Flow.Protocol)
}

// atOf names a pod, or the table of several.
func atOf(pod api.PodID, table string) string {
	if pod != (api.PodID{}) {
		return pod.String()
	}
	return dash(table)
}

// endOf names one end of a flow with its port, where its protocol has ports.
func endOf(p view.Party, port uint16, protocol api.Protocol) string {
	switch {
	case !protocol.HasPorts():
		return p.Name
	case p.Pod == (api.PodID{}) && p.Address.Is6():
		return fmt.Sprintf("[%s]:%d", p.Name, port)
	}
	return fmt.Sprintf("%s:%d", p.Name, port)
}

// whyOf names the policies that decided, or what else did.
func whyOf(v view.PacketVerdict) string {
	switch {
	case len(v.Origins) > 0:
		return few(v.Origins)
	case v.Rule != nil:
		return "rule " + v.Match
	case v.Action == api.Permit:
		return "no policy isolates the pod"
	}
	return v.Reason
}

// few writes the first origins, and how many there are beside them.
func few(origins []api.Origin) string {
	const most = 3
	var texts []string
	for _, o := range origins[:min(len(origins), most)] {
		texts = append(texts, o.String())
	}
	text := strings.Join(texts, ",")
	if more := len(origins) - most; more > 0 {
		text += fmt.Sprintf(",+%d", more)
	}
	return text
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
