package traffic

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
)

// Values of flags, for completion.
var (
	Verdicts   = []string{view.WatchDenied, view.WatchPermitted, view.WatchAll, view.WatchAudit}
	Directions = []string{"ingress", "egress"}
	Protocols  = []string{"tcp", "udp", "sctp", "icmp", "icmpv6"}
)

// filters are the flags that select verdicts.
type filters struct {
	view.Watch
	direction, protocol string
	either, from, to    side
	everywhere          bool
}

// side are the flags about an end of a flow.
type side struct{ pod, peer string }

// register adds the flags. The default verdicts are those of an action.
func (f *filters) register(cmd *cobra.Command, action string) {
	flags := cmd.Flags()
	flags.StringVar(&f.Action, "verdict", action, "deny, permit, all or audit (permitted, and policies in audit mode would deny it)")
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "action" { // as it was called before
			name = "verdict"
		}
		return pflag.NormalizedName(name)
	})
	flags.StringVarP(&f.Namespace, "namespace", "n", "", "only where a pod of this namespace is at either end")
	flags.BoolVarP(&f.everywhere, "all-namespaces", "A", false, "all namespaces, as without --namespace")
	flags.StringVarP(&f.Labels, "label", "l", "", "only where a pod with these labels is at either end, as in app=web,tier!=db")
	flags.StringVar(&f.either.pod, "pod", "", "only where this pod, or one with this text in its name, is at either end: [NAMESPACE/]NAME")
	flags.StringVar(&f.either.peer, "peer", "", "only where this address, or one of this CIDR, is at either end")
	flags.Uint16Var(&f.Port, "port", 0, "only this port of the destination")
	for name, s := range map[string]struct {
		*view.WatchSide
		*side
	}{"from": {&f.From, &f.from}, "to": {&f.To, &f.to}} {
		end := map[string]string{"from": "source", "to": "destination"}[name]
		flags.StringVar(&s.Namespace, name+"-namespace", "", "as --namespace, for the "+end+" only")
		flags.StringVar(&s.Labels, name+"-label", "", "as --label, for the "+end+" only")
		flags.StringVar(&s.pod, name+"-pod", "", "as --pod, for the "+end+" only")
		flags.StringVar(&s.peer, name+"-peer", "", "as --peer, for the "+end+" only")
		flags.Uint16Var(&s.Port, name+"-port", 0, "only this port of the "+end)
	}
	flags.StringVar(&f.Policy, "policy", "", "only where a rule of this policy decides: NAME or NAMESPACE/NAME")
	flags.StringVar(&f.direction, "direction", "", "only ingress or egress, as the pod sees it")
	flags.StringVar(&f.protocol, "protocol", "", "only tcp, udp, sctp, icmp, icmpv6, or a number")
}

// read reads the flags that are more than text.
func (f *filters) read() error {
	if f.Namespace != "" && f.everywhere {
		return errors.New("--namespace and --all-namespaces exclude each other: leave one of them out")
	}
	if f.Action != "" && !slices.Contains(Verdicts, f.Action) {
		return fmt.Errorf("--verdict %.100q: want deny, permit, all or audit", f.Action)
	}
	if f.direction != "" {
		var d api.Direction
		if err := d.UnmarshalText([]byte(f.direction)); err != nil {
			return fmt.Errorf("--direction %.100q: want ingress or egress", f.direction)
		}
		f.Direction = &d
	}
	if f.protocol != "" {
		if err := f.Protocol.UnmarshalText([]byte(strings.ToLower(f.protocol))); err != nil {
			return fmt.Errorf("--protocol %.100q: want tcp, udp, sctp, icmp, icmpv6, or a number", f.protocol)
		}
	}
	for _, s := range []struct {
		prefix string
		flags  side
		into   *view.WatchSide
	}{{"--", f.either, &f.WatchSide}, {"--from-", f.from, &f.From}, {"--to-", f.to, &f.To}} {
		if err := s.flags.read(s.prefix, s.into); err != nil {
			return err
		}
	}
	if err := f.Check(); err != nil {
		return fmt.Errorf("--%w", err)
	}
	return nil
}

// read reads the flags about an end, whose names have a prefix.
func (s side) read(prefix string, into *view.WatchSide) error {
	in, name, both := strings.Cut(s.pod, "/")
	switch {
	case !both:
		into.Pod = s.pod
	case in == "" || strings.Contains(name, "/"):
		return fmt.Errorf("%spod %.100q: want NAME or NAMESPACE/NAME", prefix, s.pod)
	case into.Namespace != "" && into.Namespace != in:
		return fmt.Errorf("%spod %.100q is not in namespace %.100s: leave %snamespace out, or name what is there", prefix, s.pod, into.Namespace, prefix)
	default:
		into.Namespace, into.Pod = in, name
	}
	if s.peer == "" {
		return nil
	}
	var err error
	if into.Peer, err = netip.ParsePrefix(s.peer); err == nil {
		return nil
	}
	a, err := netip.ParseAddr(s.peer)
	if err != nil || a.Zone() != "" {
		return fmt.Errorf("%speer %.100q is neither an address nor a CIDR", prefix, s.peer)
	}
	into.Peer = netip.PrefixFrom(a, a.BitLen())
	return nil
}
