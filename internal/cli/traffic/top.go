package traffic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/lib/settings"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/view"
)

// NewTop returns the command that shows what is most.
func (s *Shell) NewTop() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the policies, rules, pods and drops with the most packets",
		Long: `Show the policies and rules that decided the most packets, the pods with the most verdicts, and the
most frequent drops.

policies and rules read the counters of the dataplanes since their start. It depends on the
dataplane if all packets are counted, or only the first ones of flows. pods and drops add up the
verdicts that the agent keeps (--verdict-history), which are a sample of all packets.`,
		Example: "  sluicectl top drops -n shop",
		Args:    cobra.ArbitraryArgs, RunE: settings.OneOf,
	}
	cmd.AddCommand(
		newRanking(s, "policies", "packets that the rules of each policy decided", policyRanking),
		newRanking(s, "rules", "packets that each rule of a policy decided", ruleRanking),
		newRanking(s, "pods", "verdicts at the interfaces of each pod", podRanking),
		newRanking(s, "drops", "what is dropped most, between whom and why", dropRanking))
	return cmd
}

// ranking is rows of one kind, and how they are ordered and shown.
type ranking[T any] struct {
	ask func(ctx context.Context, t *topRun) ([]T, string, error) // also a remark about all rows
	// keys are what rows can be sorted by; the first is the default. Numbers come first when they
	// are large.
	keys  []key[T]
	table func(rows []T, rates []string) *term.Table
	// id identifies a row, and packets counts it.
	id      func(T) string
	packets func(T) uint64
	filters bool // the flags of filters
}

// key is something to sort by.
type key[T any] struct {
	name    string
	compare func(a, b T) int
}

// topRun is a run of top.
type topRun struct {
	*Shell
	filters
	watch  bool
	sortBy string
	most   int
	before map[string]uint64 // packets by row at the last time
	at     time.Time         // of the last time
	shown  bool
}

const (
	refreshEvery = 2 * time.Second
	clearScreen  = "\x1b[H\x1b[2J"
)

func newRanking[T any](s *Shell, kind, short string, r ranking[T]) *cobra.Command {
	t := topRun{Shell: s}
	var keys []string
	for _, k := range r.keys {
		keys = append(keys, k.name)
	}
	cmd := &cobra.Command{
		Use: kind, Short: "Show " + short, Args: cobra.NoArgs,
		Example: fmt.Sprintf("  sluicectl top %[1]s\n  sluicectl top %[1]s -n shop --sort-by %[2]s\n  sluicectl top %[1]s -w", kind, keys[1]),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := t.read(); err != nil {
				return err
			}
			return rank(cmd.Context(), &t, r)
		},
	}
	flags := cmd.Flags()
	if r.filters {
		t.register(cmd, "")
		flags.Lookup("verdict").Usage = "deny, permit, all or audit (default all that is kept)"
		flags.DurationVar(&t.Since, "since", 0, "only kept verdicts of this last time, as in 10m; 0: all")
	} else {
		flags.StringVarP(&t.Namespace, "namespace", "n", "", "only policies of this namespace")
		flags.BoolVarP(&t.everywhere, "all-namespaces", "A", false, "all namespaces, as without --namespace")
	}
	flags.BoolVarP(&t.watch, "watch", "w", false, "refresh every 2s, with packets per second")
	flags.StringVar(&t.sortBy, "sort-by", keys[0], strings.Join(keys, ", "))
	flags.IntVar(&t.most, "limit", 20, "number of rows; 0: all")
	_ = cmd.RegisterFlagCompletionFunc("sort-by", cobra.FixedCompletions(keys, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	return cmd
}

// rank prints rows once, or again and again.
func rank[T any](ctx context.Context, t *topRun, r ranking[T]) error {
	i := slices.IndexFunc(r.keys, func(k key[T]) bool { return k.name == t.sortBy })
	if i < 0 {
		var names []string
		for _, k := range r.keys {
			names = append(names, k.name)
		}
		return fmt.Errorf("--sort-by %.100q: want %s", t.sortBy, strings.Join(names, ", "))
	}
	if t.most < 0 {
		return fmt.Errorf("--limit %d: want a number of rows, or 0", t.most)
	}
	ctx, stop := interruptible(ctx, 0)
	defer stop()
	agents, err := t.Agents(ctx)
	if err != nil {
		return err
	}
	return t.Follow(ctx, agents[0], func(worked func()) error {
		for {
			rows, remark, err := r.ask(ctx, t)
			if err != nil {
				return err
			}
			worked()
			if err := printRows(t, r, r.keys[i], rows, remark); err != nil || !t.watch {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(refreshEvery):
			}
		}
	})
}

// printRows prints the first rows in an order.
func printRows[T any](t *topRun, r ranking[T], by key[T], rows []T, remark string) error {
	slices.SortStableFunc(rows, by.compare)
	more := 0
	if t.most > 0 && len(rows) > t.most {
		more = len(rows) - t.most
	}
	rates := rates(t, r, rows)
	rows = rows[:len(rows)-more]
	if t.watch {
		if written, err := t.Lines(rows); written || err != nil {
			return err
		}
	}
	return t.Print(rows, func(w *term.Writer) {
		if t.watch {
			t.again(w)
		}
		if len(rows) == 0 {
			w.Printf("nothing so far\n")
		} else {
			r.table(rows, rates).Print(w)
		}
		if more > 0 {
			w.Printf("and %d more: --limit 0 shows all\n", more)
		}
		if remark != "" {
			w.Printf("%s\n", w.Styled(term.Faint, remark))
		}
	})
}

// again separates a table from the one before: it takes its place on a terminal.
func (t *topRun) again(w *term.Writer) {
	switch {
	case term.IsTerminal(t.Out):
		_, _ = t.Out.Write([]byte(clearScreen)) // an error comes again with the table
	case t.shown:
		w.Printf("\n")
	}
	t.shown = true
}

// rates returns the packets per second of rows since the last time; nil the first time. That of a
// counter that began anew is not known.
func rates[T any](t *topRun, r ranking[T], rows []T) []string {
	if !t.watch {
		return nil
	}
	now, before, took := map[string]uint64{}, t.before, time.Since(t.at).Seconds()
	out := make([]string, len(rows))
	for i, row := range rows {
		n := r.packets(row)
		now[r.id(row)] = n
		if was := before[r.id(row)]; before == nil || n < was {
			out[i] = "-"
		} else {
			out[i] = strconv.FormatFloat(float64(n-was)/took, 'f', 1, 64)
		}
	}
	t.before, t.at = now, time.Now()
	return out
}

// tableOf returns a table with the rates of its rows, if there are some.
func tableOf[T any](rows []T, rates []string, columns []string, cells func(T) []any) *term.Table {
	if rates != nil {
		columns = append(slices.Clone(columns), "PER SECOND")
	}
	t := term.NewTable(columns...)
	for i, row := range rows {
		line := cells(row)
		if rates != nil {
			line = append(line, rates[i])
		}
		t.Row(line...)
	}
	return t
}

// most orders large numbers first.
func most[T any](name string, n func(T) uint64) key[T] {
	return key[T]{name, func(a, b T) int { return cmp.Compare(n(b), n(a)) }}
}

// latest orders late times first.
func latest[T any](at func(T) time.Time) key[T] {
	return key[T]{"last", func(a, b T) int { return at(b).Compare(at(a)) }}
}

func byName[T any](name func(T) string) key[T] {
	return key[T]{"name", func(a, b T) int { return strings.Compare(name(a), name(b)) }}
}

// PolicyTraffic is what the rules of a policy decided.
type PolicyTraffic struct {
	Policy    api.PolicyID `json:"policy,omitzero"` // zero for rules without a policy
	Permitted uint64       `json:"permitted"`
	Denied    uint64       `json:"denied"`
}

func (p PolicyTraffic) packets() uint64 { return p.Permitted + p.Denied }

func (p PolicyTraffic) name() string {
	if p.Policy == (api.PolicyID{}) {
		return "(no policy)"
	}
	return p.Policy.Short()
}

var policyRanking = ranking[PolicyTraffic]{
	ask: func(ctx context.Context, t *topRun) ([]PolicyTraffic, string, error) {
		decided, err := t.decided(ctx)
		if err != nil {
			return nil, "", err
		}
		at, out := map[api.PolicyID]int{}, []PolicyTraffic{}
		for _, d := range decided {
			i, ok := at[d.Origin.Policy]
			if !ok {
				i = len(out)
				at[d.Origin.Policy], out = i, append(out, PolicyTraffic{Policy: d.Origin.Policy})
			}
			if d.Action == api.Permit {
				out[i].Permitted += d.Packets
			} else {
				out[i].Denied += d.Packets
			}
		}
		return out, "", nil
	},
	keys: []key[PolicyTraffic]{
		most("packets", PolicyTraffic.packets), most("denied", func(p PolicyTraffic) uint64 { return p.Denied }),
		most("permitted", func(p PolicyTraffic) uint64 { return p.Permitted }), byName(PolicyTraffic.name),
	},
	id: PolicyTraffic.name, packets: PolicyTraffic.packets,
	table: func(rows []PolicyTraffic, rates []string) *term.Table {
		return tableOf(rows, rates, []string{"POLICY", "PACKETS", "DENIED", "PERMITTED"}, func(p PolicyTraffic) []any {
			return []any{p.name(), p.packets(), p.Denied, p.Permitted}
		}).Narrow(20, "POLICY")
	},
}

// decided asks for the counters of rules, and adds up those of nodes.
func (t *topRun) decided(ctx context.Context) ([]view.Decided, error) {
	q := url.Values{}
	if t.Namespace != "" {
		q.Set("namespace", t.Namespace)
	}
	var mu sync.Mutex
	sum := sums[view.Decided]{rows: []view.Decided{}, id: decidedName, add: func(to *view.Decided, d view.Decided) { to.Packets += d.Packets }}
	err := t.askAll(ctx, func(ctx context.Context, a Agent) error {
		var rows []view.Decided
		if err := a.Get(ctx, "/v1/decisions?"+q.Encode(), &rows); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		sum.take(rows)
		return nil
	})
	return sum.rows, err
}

// askAll asks all agents. Where others answer than before, there are no rates: what one of them counted
// meanwhile is none.
func (t *topRun) askAll(ctx context.Context, ask func(context.Context, Agent) error) error {
	err := t.Ask(ctx, ask)
	if t.watch && t.SayMissed() {
		t.before = nil
	}
	return err
}

// sums are rows of which those with the same name are added up.
type sums[T any] struct {
	id   func(T) string
	add  func(to *T, row T)
	rows []T
	at   map[string]int
}

func (s *sums[T]) take(rows []T) {
	for _, row := range rows {
		i, ok := s.at[s.id(row)]
		if ok {
			s.add(&s.rows[i], row)
			continue
		}
		if s.at == nil {
			s.at = map[string]int{}
		}
		s.at[s.id(row)] = len(s.rows)
		s.rows = append(s.rows, row)
	}
}

func ruleName(d view.Decided) string {
	if d.Origin == (api.Origin{}) {
		return "(no policy)"
	}
	return api.OriginTexts([]api.Origin{d.Origin})
}

var ruleRanking = ranking[view.Decided]{
	ask: func(ctx context.Context, t *topRun) ([]view.Decided, string, error) {
		out, err := t.decided(ctx)
		return out, "", err
	},
	keys: []key[view.Decided]{most("packets", decidedPackets), byName(ruleName)},
	id:   decidedName, packets: decidedPackets,
	table: func(rows []view.Decided, rates []string) *term.Table {
		return tableOf(rows, rates, []string{"RULE", "VERDICT", "PACKETS", "RENDERER"}, func(d view.Decided) []any {
			return []any{ruleName(d), verdict(d.Action), d.Packets, d.Renderer}
		}).Narrow(24, "RULE").Optional("RENDERER")
	},
}

func decidedName(d view.Decided) string {
	return d.Renderer + " " + d.Action.String() + " " + ruleName(d)
}

func decidedPackets(d view.Decided) uint64 { return d.Packets }

func verdict(a api.Action) term.Cell {
	if a == api.Deny {
		return term.Cell{Text: a.String(), Style: term.Red}
	}
	return term.Cell{Text: a.String(), Style: term.Green}
}

// traffic asks for the sums of verdicts, adds up those of nodes, and returns a remark about what they leave
// out.
func (t *topRun) traffic(ctx context.Context) (out view.Traffic, remark string, err error) {
	var mu sync.Mutex
	pods := sums[view.PodTraffic]{rows: []view.PodTraffic{}, id: podName, add: func(to *view.PodTraffic, p view.PodTraffic) {
		to.Denied, to.Permitted, to.Last = to.Denied+p.Denied, to.Permitted+p.Permitted, later(to.Last, p.Last)
	}}
	drops := sums[view.Drop]{rows: []view.Drop{}, id: dropID, add: func(to *view.Drop, d view.Drop) {
		to.Packets, to.Last = to.Packets+d.Packets, later(to.Last, d.Last)
	}}
	err = t.askAll(ctx, func(ctx context.Context, a Agent) error {
		var one view.Traffic
		if err := a.Post(ctx, "/v1/traffic", t.Watch, &one); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		pods.take(one.Pods)
		drops.take(one.Drops)
		if out.Since.IsZero() || !one.Since.IsZero() && one.Since.Before(out.Since) {
			out.Since = one.Since
		}
		out.Missed, out.More = out.Missed+one.Missed, out.More+one.More
		return nil
	})
	if err != nil {
		return out, "", err
	}
	out.Pods, out.Drops = pods.rows, drops.rows
	if !out.Since.IsZero() {
		remark = "verdicts kept since " + out.Since.Local().Format("15:04:05")
	}
	if out.Missed > 0 {
		remark += fmt.Sprintf("; %d packets of that time were not reported", out.Missed)
	}
	if out.More > 0 {
		remark += fmt.Sprintf("; %d rows with few packets are left out", out.More)
	}
	return out, remark, nil
}

func podPackets(p view.PodTraffic) uint64 { return p.Denied + p.Permitted }

func podName(p view.PodTraffic) string {
	if p.Pod == (api.PodID{}) {
		return "(no known pod)"
	}
	return p.Pod.String()
}

var podRanking = ranking[view.PodTraffic]{
	filters: true,
	ask: func(ctx context.Context, t *topRun) ([]view.PodTraffic, string, error) {
		all, remark, err := t.traffic(ctx)
		return all.Pods, remark, err
	},
	keys: []key[view.PodTraffic]{
		most("packets", podPackets), most("denied", func(p view.PodTraffic) uint64 { return p.Denied }),
		most("permitted", func(p view.PodTraffic) uint64 { return p.Permitted }), latest(func(p view.PodTraffic) time.Time { return p.Last }), byName(podName),
	},
	id: podName, packets: podPackets,
	table: func(rows []view.PodTraffic, rates []string) *term.Table {
		return tableOf(rows, rates, []string{"POD", "PACKETS", "DENIED", "PERMITTED", "LAST"}, func(p view.PodTraffic) []any {
			return []any{podName(p), podPackets(p), p.Denied, p.Permitted, clock(p.Last)}
		}).Narrow(20, "POD").Optional("LAST")
	},
}

func dropName(d view.Drop) string {
	if d.Src == "" && d.Dst == "" { // the dataplane only counts
		return "packets at " + dash(d.Pod.String())
	}
	to := d.Dst
	if d.Protocol.HasPorts() {
		to = fmt.Sprintf("%s:%d", d.Dst, d.Port)
	}
	return fmt.Sprintf("%s -> %s %s", d.Src, to, d.Protocol)
}

var dropRanking = ranking[view.Drop]{
	filters: true,
	ask: func(ctx context.Context, t *topRun) ([]view.Drop, string, error) {
		if t.Action == view.WatchPermitted {
			return nil, "", errors.New("--verdict permit: drops are denied packets")
		}
		t.Action = view.WatchDenied
		all, remark, err := t.traffic(ctx)
		return all.Drops, remark, err
	},
	keys: []key[view.Drop]{most("packets", dropPackets), latest(func(d view.Drop) time.Time { return d.Last }), byName(dropName)},
	id:   dropID, packets: dropPackets,
	table: func(rows []view.Drop, rates []string) *term.Table {
		return tableOf(rows, rates, []string{"FLOW", "AT", "PACKETS", "LAST", "WHY"}, func(d view.Drop) []any {
			return []any{dropName(d), d.Direction, d.Packets, clock(d.Last), dropWhy(d)}
		}).Narrow(30, "FLOW").Narrow(20, "WHY").Optional("LAST", "AT")
	},
}

func dropID(d view.Drop) string { return dropName(d) + " " + d.Direction.String() + " " + dropWhy(d) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func dropPackets(d view.Drop) uint64 { return d.Packets }

func dropWhy(d view.Drop) string {
	if len(d.Origins) > 0 {
		return api.OriginTexts(d.Origins)
	}
	return d.Reason
}

func clock(t time.Time) string { return t.Local().Format("15:04:05") }
