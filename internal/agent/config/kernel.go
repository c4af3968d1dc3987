package config

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/internal/preflight"
	"github.com/sluice-net/sluice/renderer/xdp"
)

// Kernel says how the kernel enforces.
type Kernel struct {
	Mode         string        `koanf:"xdp-mode"`
	Pins         string        `koanf:"xdp-pins"`
	TakeOver     bool          `koanf:"take-over"`
	Uplinks      []string      `koanf:"xdp-uplink"`
	Learn        time.Duration `koanf:"xdp-learn"`
	Flows        uint32        `koanf:"xdp-flows"`
	PolicyMemory uint32        `koanf:"policy-memory"`
	Events       uint32        `koanf:"xdp-events"`
	Sample       uint32        `koanf:"xdp-sample"`
	AnySource    bool          `koanf:"xdp-any-source"`
}

func kernelFlags(f *pflag.FlagSet) {
	f.String("xdp-mode", string(xdp.ModeAuto), "where the kernel decides: auto (TCX at the node's ends of pairs, clsact where the kernel has no TCX), clsact, xdp, generic")
	f.String("xdp-pins", xdp.DefaultPinPath, "folder of a bpf file system; what is pinned there goes on while the agent is not running")
	f.Bool("take-over", false, "take over pins in --xdp-pins that an agent with another --node left; for one start")
	f.StringSlice("xdp-uplink", nil, "interfaces at which packets to pods are dropped early, by XDP")
	f.Duration("xdp-learn", 30*time.Second, "for how long after a pod is attached the middle of a TCP flow that policy permits is taken for one that was open; 0 for not at all")
	f.Uint32("xdp-flows", xdp.DefaultFlows, "places for flows whose answers need evidence, 32 bytes each; half of as many fit almost without loss")
	f.Uint32("policy-memory", 128, "MiB that rules and the addresses that they name may take in the kernel, those of one namespace a quarter of it; pods whose rules are beyond are blocked; 0: no limit")
	f.Uint32("xdp-events", 100, "verdicts of packets that each processor tells in a second while sluicectl watch verdicts listens; 0 for none")
	f.Uint32("xdp-sample", 1, "of so many packets that could be told of, one is")
	f.Bool("xdp-any-source", false, "let pods send from addresses that are not theirs")
}

func (k Kernel) check() error {
	if k.Mode == "xdp-pod" {
		return errors.New("--xdp-mode xdp-pod is withdrawn, since it could not tell where packets came from: use auto, which sees all packets to a pod and takes over without a gap")
	}
	if mode := xdp.Mode(k.Mode); k.Mode != "" && (!slices.Contains(xdp.Modes, mode) || mode == xdp.ModeNone) {
		return fmt.Errorf("--xdp-mode %q: want auto, clsact, xdp or generic", k.Mode)
	}
	if k.Flows > xdp.MaxFlows {
		return fmt.Errorf("--xdp-flows %d: want %d at most", k.Flows, xdp.MaxFlows)
	}
	return nil
}

func (k Kernel) preflight(h Host, node string) []preflight.Check {
	return []preflight.Check{
		check("kernel", true, func(context.Context) preflight.Finding { return k.checkKernel(h.Release()) }),
		check("capabilities", true, func(context.Context) preflight.Finding { return checkRights(h.Status()) }),
		check("bpf file system", true, k.checkPins),
		check("xdp pins", true, func(context.Context) preflight.Finding { return k.checkOwner(node) }),
	}
}

func (k Kernel) preflightUplinks() []preflight.Check {
	if len(k.Uplinks) == 0 {
		return nil
	}
	return []preflight.Check{check("xdp uplinks", true, func(context.Context) preflight.Finding {
		if _, err := xdp.Indexes(k.Uplinks); err != nil {
			return preflight.Fail(fmt.Errorf("--xdp-uplink: %w", err), "ip link shows the interfaces of this node")
		}
		return preflight.Fine("%s", strings.Join(k.Uplinks, ", "))
	})}
}

func (k Kernel) checkKernel(release string) preflight.Finding {
	note, err := xdp.CheckKernel(release, xdp.Mode(k.Mode), len(k.Uplinks) > 0)
	switch {
	case err != nil:
		return preflight.Fail(err, "use a newer kernel, or another renderer")
	case note != "":
		return preflight.Fine("%s; %s", release, note)
	}
	return preflight.Fine("%s", release)
}

func checkRights(status string, err error) preflight.Finding {
	effective, errParse := xdp.EffectiveCapabilities(status)
	if err = errors.Join(err, errParse); err != nil {
		return preflight.Warn(fmt.Errorf("capabilities are not known: %w", err), "")
	}
	if missing := xdp.MissingCapabilities(effective); len(missing) > 0 {
		return preflight.Fail(fmt.Errorf("renderer xdp needs %s, which this process has not", strings.Join(missing, ", ")),
			"start the agent as root, or give its container these capabilities")
	}
	return preflight.Fine("none is missing")
}

func (k Kernel) checkPins(context.Context) preflight.Finding {
	if err := xdp.CheckPins(k.Pins); err != nil {
		return preflight.Fail(fmt.Errorf("--xdp-pins: %w", err), xdp.PinsRemedy)
	}
	return preflight.Fine("%s", k.Pins)
}

// checkOwner checks that this agent can own its folder for pins, where there can be one.
func (k Kernel) checkOwner(node string) preflight.Finding {
	if xdp.CheckPins(k.Pins) != nil {
		return preflight.Finding{}
	}
	err := xdp.CheckOwner(k.Pins, node, k.TakeOver)
	var refused *xdp.PinsError
	switch {
	case errors.As(err, &refused):
		return preflight.Fail(fmt.Errorf("--xdp-pins: %w", refused.Problem), refused.Remedy)
	case err != nil:
		return preflight.Warn(fmt.Errorf("--xdp-pins: whose they are is not known: %w", err), "")
	}
	return preflight.Fine("nobody else has them")
}
