package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/settings"
	"github.com/sluice-net/sluice/internal/term"
	"github.com/sluice-net/sluice/internal/view"
)

func newWatch(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "watch", Short: "Follow what happens on a node", Example: "  sluicectl watch verdicts -n shop",
		Args: cobra.ArbitraryArgs, RunE: settings.OneOf,
	}
	cmd.AddCommand(newWatchVerdicts(o))
	return cmd
}

// watchFlags are filters of verdicts, and when to end.
type watchFlags struct {
	view.Watch
	direction, peer, protocol string
	count                     int
	period                    time.Duration
}

func newWatchVerdicts(o *options) *cobra.Command {
	var f watchFlags
	cmd := &cobra.Command{
		Use:   "verdicts [POD]",
		Short: "Follow packets that are dropped, or that begin permitted flows, with their policies",
		Long: `Follow verdicts of packets at the interfaces of the node's pods, as they are made: what is dropped,
by which rule of which policy, or for which other reason. --action permit or all also reports the
packets that begin flows. It is for nodes where the kernel enforces (sluice-agent run --renderers
xdp).

Not every packet is reported: each processor of the node reports a limited number per second
(--xdp-events of the agent), of which the agent may take a sample (--xdp-sample). A line gives the
number of packets that were left out in between. While no client follows, no packet is reported.

With -o json every verdict is a line, with -o yaml a document.`,
		Example: `  sluicectl watch verdicts
  sluicectl watch verdicts -n shop web --action all
  sluicectl watch verdicts --policy data/default-deny --direction ingress
  sluicectl watch verdicts --peer 198.51.100.0/24 --protocol tcp --port 5432 --for 1m
  sluicectl watch verdicts --count 1 -o json`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return o.complete(cmd, getFlags{namespace: f.Namespace}, func(r *getRun) (names []string, err error) {
				pods, err := podList.ask(r.ctx(), r, r.namespace, "")
				for _, p := range pods {
					names = append(names, p.Pod.Name)
				}
				return names, err
			})
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				f.Pod = args[0]
			}
			if err := f.parse(); err != nil {
				return err
			}
			return o.watchVerdicts(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.Namespace, "namespace", "n", "", "only where a pod of this namespace is at either end")
	flags.StringVar(&f.Policy, "policy", "", "only where a rule of this policy decides: NAME or NAMESPACE/NAME")
	flags.StringVar(&f.Action, "action", view.WatchDenied, "deny, permit or all")
	flags.StringVar(&f.direction, "direction", "", "only ingress or egress, as the pod sees it")
	flags.StringVar(&f.peer, "peer", "", "only where this address, or one of this CIDR, is at either end")
	flags.StringVar(&f.protocol, "protocol", "", "only tcp, udp, sctp, icmp, icmpv6, or a number")
	flags.Uint16Var(&f.Port, "port", 0, "only this port of the destination")
	flags.IntVar(&f.count, "count", 0, "end after so many verdicts; 0: never")
	flags.DurationVar(&f.period, "for", 0, "end after so long; 0: never")
	return cmd
}

// parse reads the flags that are more than text.
func (f *watchFlags) parse() error {
	if err := f.Check(); err != nil {
		return fmt.Errorf("--%w", err)
	}
	if f.direction != "" {
		var d api.Direction
		if err := d.UnmarshalText([]byte(f.direction)); err != nil {
			return fmt.Errorf("--direction %q: want ingress or egress", f.direction)
		}
		f.Direction = &d
	}
	if f.protocol != "" {
		if err := f.Protocol.UnmarshalText([]byte(strings.ToLower(f.protocol))); err != nil {
			return fmt.Errorf("--protocol %q: %w", f.protocol, err)
		}
	}
	if f.peer == "" {
		return nil
	}
	var err error
	if f.Peer, err = netip.ParsePrefix(f.peer); err == nil {
		return nil
	}
	a, err := netip.ParseAddr(f.peer)
	if err != nil {
		return fmt.Errorf("--peer %q is neither an address nor a CIDR", f.peer)
	}
	f.Peer = netip.PrefixFrom(a, a.BitLen())
	return nil
}

// errEnough ends a stream of which enough was seen.
var errEnough = errors.New("enough was seen")

// watchVerdicts prints verdicts until the limit is reached, or the reader closes the output.
func (o *options) watchVerdicts(ctx context.Context, f watchFlags) error {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if f.period > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.period)
		defer cancel()
	}
	heading, print := o.verdictPrinter()
	seen := 0
	err := o.client().stream(ctx, "/v1/verdicts", f.Watch, heading, func(line json.RawMessage) error {
		var v struct {
			view.PacketVerdict
			view.WatchEnd
		}
		if err := json.Unmarshal(line, &v); err != nil {
			return err
		}
		if v.Error != "" {
			return errors.New(v.Error)
		}
		if err := print(v.PacketVerdict); err != nil {
			return err
		}
		if seen++; seen == f.count {
			return errEnough
		}
		return nil
	})
	if err == nil || ctx.Err() != nil || errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// verdictPrinter returns the functions that write the heading and one verdict in the wanted format.
func (o *options) verdictPrinter() (heading func(), print func(view.PacketVerdict) error) {
	switch o.output {
	case formatJSON:
		enc := json.NewEncoder(term.JSON(o.out))
		enc.SetEscapeHTML(false)
		return func() {}, func(v view.PacketVerdict) error { return enc.Encode(v) }
	case formatYAML:
		return func() {}, func(v view.PacketVerdict) error {
			b, err := toYAML(v)
			if err == nil {
				_, err = fmt.Fprintf(o.out, "---\n%s", b)
			}
			return err
		}
	case formatTable, formatWide:
	default:
		return func() {}, func(v view.PacketVerdict) error { return o.output.print(o.out, v, nil) }
	}
	w := term.NewWriter(o.out)
	heading = func() {
		w.Printf("%s\n", w.Styled(term.Faint, fmt.Sprintf("%-12s  %-6s  %-7s  %-60s  %s", "TIME", "ACTION", "AT", "FLOW", "WHY")))
	}
	return heading, func(v view.PacketVerdict) error {
		writeVerdict(w, v, o.output == formatWide)
		return w.Err()
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
	action := w.Styled(style, fmt.Sprintf("%-6s", v.Action))
	flow := fmt.Sprintf("%s -> %s %s", endOf(v.Src, v.Flow.SrcPort, v.Flow.Protocol), endOf(v.Dst, v.Flow.DstPort, v.Flow.Protocol), v.Flow.Protocol)
	w.Printf("%s  %s  %-7s  %-60s  %s\n", v.Time.Local().Format("15:04:05.000"), action, v.Direction, flow, whyOf(v))
	if wide {
		w.Printf("  at interface %d of %s, %d bytes; %s %s -> %s\n", v.Interface, dash(v.Pod.String()), v.Bytes, dash(v.Table), v.Flow.Src, v.Flow.Dst)
	}
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
		return some(v.Origins, 3)
	case v.Rule != nil:
		return "rule " + v.Match
	case v.Action == api.Permit:
		return "no policy isolates the pod"
	}
	return v.Reason
}
