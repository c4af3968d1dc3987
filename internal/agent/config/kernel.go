package config

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/internal/lib/preflight"
	"github.com/sluice-net/sluice/renderer/xdp"
)

// Kernel has the settings of the kernel dataplane.
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
	f.String("xdp-mode", string(xdp.ModeAuto), "hook of the programs: auto (TCX at the host side of veth pairs, clsact where the kernel has no TCX), clsact, xdp, generic")
	f.String("xdp-pins", xdp.DefaultPinPath, "directory of a bpf file system; programs pinned there keep enforcing while the agent is not running")
	f.Bool("take-over", false, "take over the pins in --xdp-pins that an agent with another --node left; use it for one start")
	f.StringSlice("xdp-uplink", nil, "uplink interfaces at which XDP drops denied packets to pods early")
	f.Duration("xdp-learn", 30*time.Second, "how long after a pod's first attach mid-stream TCP packets that policy permits create a tracked connection; 0: never")
	f.Uint32("xdp-flows", xdp.DefaultFlows, "size of the connection table, 32 bytes for each entry; keep its load below 50 %")
	f.Uint32("policy-memory", 128, "MiB of the policy image in the kernel, half of it for rules and half for their addresses; pods whose lists it has no room for are blocked, first the largest lists of namespaces with more than an even part; 0: what the kernel has")
	f.Uint32("xdp-events", 100, "verdict events per CPU and second, for sluicectl watch verdicts and --verdict-history; 0: none")
	f.Uint32("xdp-sample", 1, "report the verdict of one in N packets")
	f.Bool("xdp-any-source", false, "let pods send from addresses other than their own (no anti-spoofing)")
}

func (k Kernel) check() error {
	if k.Mode == "xdp-pod" {
		return errors.New("--xdp-mode xdp-pod was removed, because it did not know the interface that packets came from: use auto, which sees all packets to a pod and takes over without a gap")
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
		check("flow tables", false, checkFlowTables),
	}
}

// FlowTables is what is wrong with a flow table of netfilter, and the remedy.
const FlowTables = "what it forwards is not judged as traffic of the pod that sends it: remove it, or leave interfaces of pods out of it"

func checkFlowTables(context.Context) preflight.Finding {
	switch tables, err := xdp.FlowTables(); {
	case err != nil:
		return preflight.Warn(err, "")
	case len(tables) > 0:
		return preflight.Warn(fmt.Errorf("netfilter has the flow table %s", strings.Join(tables, ", ")), FlowTables)
	}
	return preflight.Fine("none")
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
		return preflight.Warn(fmt.Errorf("read the capabilities of this process: %w", err), "")
	}
	if missing := xdp.MissingCapabilities(effective); len(missing) > 0 {
		return preflight.Fail(fmt.Errorf("renderer xdp needs %s, which this process does not have", strings.Join(missing, ", ")),
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
		return preflight.Warn(fmt.Errorf("--xdp-pins: the owner is unknown: %w", err), "")
	}
	return preflight.Fine("no other agent owns them")
}
