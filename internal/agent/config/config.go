// Package config has the settings of sluice-agent, in sections. A section is a struct with its
// flags, their defaults and texts, and what is wrong with their values; a new setting is written in
// its section and nowhere else.
//
// Each setting is a flag, an environment variable (--api-socket is SLUICE_API_SOCKET) and a key in
// the file of --config; a flag wins over the environment, that over the file, that over the
// default.
//
// # Invariants
//
// A check reads the machine and changes nothing there.
package config

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/internal/cniinstall"
	"github.com/sluice-net/sluice/internal/preflight"
	"github.com/sluice-net/sluice/internal/settings"
	"github.com/sluice-net/sluice/renderer/acl"
)

// Config is the settings of an agent.
type Config struct {
	Node      Node      `koanf:",squash"`
	Store     Store     `koanf:",squash"`
	Enforce   Enforce   `koanf:",squash"`
	VPP       VPP       `koanf:",squash"`
	Ligato    Ligato    `koanf:",squash"`
	Kernel    Kernel    `koanf:",squash"`
	Link      Link      `koanf:",squash"`
	Endpoints Endpoints `koanf:",squash"`
	CNI       CNI       `koanf:",squash"`
	Listen    Listen    `koanf:",squash"`
	Log       Log       `koanf:",squash"`
	Dev       Dev       `koanf:",squash"`
}

// commonFlags are those of every command that runs or checks an agent.
func commonFlags(f *pflag.FlagSet) {
	f.String("config", "", "file with settings, YAML; keys are the names of flags")
	nodeFlags(f)
	prefixFlags(f)
	ruleFlags(f)
	vswitchFlags(f)
	listenFlags(f)
	logFlags(f)
}

// RunFlags are the flags of run, and of check.
func RunFlags(f *pflag.FlagSet) {
	commonFlags(f)
	renderersFlag(f, "who enforces: acl (VPP, or a vpp-agent), session beside it (applications on VPP's host stack), xdp (the kernel, at veth pairs of pods)")
	storeFlags(f)
	vppFlags(f)
	ligatoFlags(f)
	kernelFlags(f)
	linkFlags(f)
	endpointFlags(f)
	cniFlags(f)
}

// DevFlags are the flags of dev. Nothing embedded has veth pairs.
func DevFlags(f *pflag.FlagSet) {
	commonFlags(f)
	renderersFlag(f, "who enforces in the embedded dataplane: acl, and session beside it (applications on its host stack)")
	devFlags(f)
}

// Load reads the settings from the file, the environment and the flags.
func Load(flags *pflag.FlagSet, environ []string) (Config, error) {
	return settings.Load[Config](flags, environ)
}

// Check returns what is wrong with settings that can be judged by themselves.
func (c Config) Check() error {
	if err := c.Log.check(); err != nil {
		return err
	}
	_, errNode := c.Node.FurtherAddresses()
	_, errACL := c.ACL()
	return errors.Join(c.Ligato.check(), c.checkBackends(), errNode, errACL)
}

// checkBackends checks who enforces, and how.
func (c Config) checkBackends() error {
	if err := c.Enforce.check(c.IsDev(), c.Ligato.Wanted()); err != nil {
		return err
	}
	if err := c.Kernel.check(); err != nil {
		return err
	}
	return errors.Join(c.Endpoints.check(), c.Link.check(), c.CNI.check(c.Endpoints.CNIConfDir))
}

// IsDev reports whether the settings are those of dev: --xdp-mode is a flag of run.
func (c Config) IsDev() bool { return c.Kernel.Mode == "" }

// Embedded reports whether the dataplane is one in this process: no VPP has a socket, and no
// vpp-agent programs one.
func (c Config) Embedded() bool { return c.VPP.Socket == "" && !c.Ligato.Wanted() }

// Reflected reports whether somebody else writes the state: in development the agent does.
func (c Config) Reflected() bool { return !c.Embedded() }

// TalksToVPP reports whether a renderer programs VPP by its binary API.
func (c Config) TalksToVPP() bool { return c.Enforce.Has(RendererACL) && !c.Ligato.Wanted() }

// KeepsRules reports whether all that enforces is VPP, which is asked for what it enforces already
// before the saved state is used.
func (c Config) KeepsRules() bool {
	return c.VPP.Socket != "" && !c.Ligato.Wanted() && !c.Enforce.Has(RendererXDP)
}

// ACL returns the options of the ACL renderer, as far as settings say them.
func (c Config) ACL() (acl.Options, error) { return c.VPP.options(c.Enforce) }

// Installer makes what installs the CNI plugin.
func (c Config) Installer(ctx context.Context, log *slog.Logger) (*cniinstall.Installer, error) {
	members, err := c.CNI.members(c.Listen.APISocket, c.Kernel.Pins)
	if err != nil {
		return nil, err
	}
	return c.CNI.installer(ctx, log, c.Endpoints.CNIConfDir, members)
}

// Idle is a setting that was given and has no effect.
type Idle struct{ Name, Why string }

// Idle returns those of the settings that belong to what is not switched on.
func (c Config) Idle(given []string) (out []Idle) {
	for _, name := range given {
		kind, _, _ := strings.Cut(name, "-")
		switch {
		case (kind == "xdp" || slices.Contains(ofKernel, name)) && !c.Enforce.Has(RendererXDP):
			out = append(out, Idle{name, "--renderers has no xdp"})
		case c.CNI.idle(name, c.Enforce.Has(RendererXDP)):
			out = append(out, Idle{name, "--cni-bin-dir is not set"})
		case kind == "ligato" && !c.Ligato.Wanted():
			out = append(out, Idle{name, "--acl-target is not ligato"})
		case (name == "vpp-socket" || name == "vpp-stats-socket") && !c.TalksToVPP():
			out = append(out, Idle{name, "no renderer speaks with VPP"})
		case kind == "acl" && !c.Enforce.Has(RendererACL):
			out = append(out, Idle{name, "--renderers has no acl"})
		}
	}
	return out
}

// ofKernel are settings of the dataplane in the kernel whose names do not begin with xdp.
var ofKernel = []string{"policy-memory", "take-over", "new-interfaces", "pod-interfaces", "cni-results", "endpoints-file", "non-ip", "pod-tunnels", "pod-tunnel-ports"}

// Enforcers says for the log who enforces, and where.
func (c Config) Enforcers() (out []any) {
	out = []any{"renderers", c.Enforce.Renderers}
	switch {
	case !c.Enforce.Has(RendererACL):
	case c.Ligato.Wanted():
		out = append(out, "target", c.Ligato.Target)
	default:
		out = append(out, "target", c.Ligato.Target, "vpp", c.VPP.Socket)
	}
	if c.Enforce.Has(RendererXDP) {
		out = append(out, "xdp_mode", c.Kernel.Mode)
	}
	return out
}

// Preflight returns the checks of what an agent needs of its settings and of its machine. They ask
// nobody else, so run makes them each time it starts.
func (c Config) Preflight(h Host) []preflight.Check {
	out := slices.Concat(c.Node.preflight(), c.Store.preflight(), c.Listen.preflight(), c.CNI.preflight(c.Endpoints.CNIConfDir))
	if c.TalksToVPP() {
		out = append(out, c.VPP.preflight()...)
	}
	if c.Enforce.Has(RendererXDP) {
		out = slices.Concat(out, c.Kernel.preflight(h, c.Node.Name), c.Endpoints.preflight(), c.Kernel.preflightUplinks())
	}
	return out
}
