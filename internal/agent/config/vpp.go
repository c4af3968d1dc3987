package config

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/internal/preflight"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// VPP says how the agent talks to VPP, and what of it ACLs may take. An embedded dataplane has the
// settings of ACLs only.
type VPP struct {
	Socket       string        `koanf:"vpp-socket"` // empty: the dataplane is embedded
	StatsSocket  string        `koanf:"vpp-stats-socket"`
	Timeout      time.Duration `koanf:"vpp-timeout"`
	Uplinks      []string      `koanf:"uplink"`
	BlockUnknown bool          `koanf:"hold-unknown-pods"`
	Orientation  string        `koanf:"acl-orientation"`
	Memory       uint32        `koanf:"acl-memory"`
	Grace        time.Duration `koanf:"grace"`
	UDPIdle      time.Duration `koanf:"udp-idle-timeout"`
	Sessions     uint32        `koanf:"session-table"`
	PauseBudget  string        `koanf:"vpp-pause-budget"`
	Services     []string      `koanf:"service-cidr"`
}

// vswitchFlags are for every vswitch, be it embedded.
func vswitchFlags(f *pflag.FlagSet) {
	f.StringSlice("uplink", nil, "names of interfaces that lead out of the node, beside those with the uplink tag")
	f.String("acl-orientation", acl.Outputs.String(), "where packets meet the rules for what pods send: outputs, where they leave VPP, or split, at the pod's own interface, "+
		"where VPP translates sources ahead of outputs; split needs --established=keep")
	f.Duration("vpp-timeout", 5*time.Second, "how long one call to the dataplane may take")
	f.Uint32("acl-memory", 0, "MiB of the vswitch's memory that ACLs may take; what does not fit is refused; 0 asks VPP how much it has")
}

func vppFlags(f *pflag.FlagSet) {
	f.String("vpp-socket", "/run/vpp/api.sock", "Unix socket of VPP's binary API")
	f.String("vpp-stats-socket", "/run/vpp/stats.sock", "socket of VPP's statistics segment, for the packet counters of rules and the size of VPP's heap; empty: neither is known")
	f.Bool("hold-unknown-pods", true, "close interfaces of pods until their pod is known, so that it sends and gets nothing before its policy is enforced")
	f.Duration("grace", 5*time.Minute, "for how long after VPP's start pods may go on with flows that they had opened before; 0 for not at all")
	f.String("vpp-pause-budget", "1%", "share of time for which changes of rules may pause VPP's workers; what only permits more waits for it, 2 s at most; 100%: nothing waits")
	f.StringSlice("service-cidr", nil, "addresses of services that VPP translates (CNAT, nat44) to those of pods; what pods send there is judged behind the translation; none: VPP translates none")
	f.Duration("udp-idle-timeout", 2*time.Minute, "when VPP forgets a flow of UDP without packets; 0 leaves VPP's setting, which is 10 minutes")
	f.Uint32("session-table", 0, "how many sessions VPP may have, for all pods together; only as many as its table has once an interface has ACLs; 0 leaves VPP's setting, which is 500000")
}

// options reads all that ACLs need.
func (v VPP) options(e Enforce) (acl.Options, error) {
	o := acl.Options{
		Socket:  v.Socket,
		Stats:   acl.Stats{Socket: v.StatsSocket},
		Timeout: v.Timeout,
		Uplinks: v.Uplinks,
		Pods:    acl.Pods{BlockUnknown: v.BlockUnknown},
		Memory:  uint64(v.Memory) << 20,
		Flows:   acl.Flows{Grace: v.Grace, UDPIdle: v.UDPIdle, SessionTable: v.Sessions},
	}
	var errEstablished, errOrientation, errInfra, errBudget, errServices error
	if e.Established != "" && o.Flows.Established.UnmarshalText([]byte(e.Established)) != nil {
		errEstablished = fmt.Errorf("--established %q: want revoke or keep", e.Established)
	}
	if v.Orientation != "" && o.Orientation.UnmarshalText([]byte(v.Orientation)) != nil {
		errOrientation = fmt.Errorf("--acl-orientation %q: want outputs or split", v.Orientation)
	} else if o.Orientation == acl.Split && !e.Keeps() {
		errOrientation = errors.New("--acl-orientation split: want --established keep beside it, since VPP cannot tell there who opened a flow")
	}
	o.Infra, errInfra = e.Exempt()
	o.Pacing.PauseBudget, errBudget = v.pauses()
	o.Services, errServices = v.services()
	return o, errors.Join(errEstablished, errOrientation, errInfra, errBudget, errServices)
}

// pauses reads the share of time for which changes may pause VPP; none for an embedded
// dataplane, which no change pauses.
func (v VPP) pauses() (share float64, err error) {
	if v.PauseBudget == "" {
		return 0, nil
	}
	number, ok := strings.CutSuffix(v.PauseBudget, "%")
	percent, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(percent > 0 && percent <= 100) { // nor not a number
		return 0, fmt.Errorf("--vpp-pause-budget %q: want a percentage above 0%%, and at most 100%%", v.PauseBudget)
	}
	return percent / 100, nil
}

// services reads the addresses of services.
func (v VPP) services() (out []netip.Prefix, err error) {
	for _, s := range v.Services {
		p, err := netip.ParsePrefix(strings.TrimSpace(s))
		if err != nil || p.Bits() == 0 || p.Addr().Is4In6() {
			return nil, fmt.Errorf("--service-cidr %q: want a block of addresses, such as 10.96.0.0/12", s)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

func (v VPP) preflight() []preflight.Check {
	out := []preflight.Check{check("vpp socket", false, func(ctx context.Context) preflight.Finding {
		if err := vpp.CheckSocket(ctx, vpp.APINetwork, v.Socket); err != nil {
			return preflight.Fail(fmt.Errorf("--vpp-socket: %w", err),
				vppRemedy(err, "start VPP, or name its socket with --vpp-socket; until it answers, nothing is enforced"))
		}
		return preflight.Fine("%s", v.Socket)
	})}
	if v.StatsSocket == "" {
		return out
	}
	return append(out, check("vpp stats socket", false, func(ctx context.Context) preflight.Finding {
		if err := vpp.CheckSocket(ctx, vpp.StatsNetwork, v.StatsSocket); err != nil {
			return preflight.Warn(fmt.Errorf("--vpp-stats-socket: %w", err),
				vppRemedy(err, "put statseg { default } into VPP's startup.conf, or name the socket; until then rules have no packet counters"))
		}
		return preflight.Fine("%s", v.StatsSocket)
	}))
}

// vppRemedy is what to do about a socket of VPP: a right is another matter than a VPP that is not
// there.
func vppRemedy(err error, otherwise string) string {
	if errors.Is(err, os.ErrPermission) {
		return "start the agent as that user or with that group, or set gid in VPP's startup.conf"
	}
	return otherwise
}
