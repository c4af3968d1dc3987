// Package config defines the settings of sluice-agent, in sections. A section is a struct with its
// flags, their defaults and usages, and the checks of their values. CONTRIBUTING.md lists what a new
// setting needs besides.
//
// Each setting is a flag, an environment variable (--api-socket is SLUICE_API_SOCKET) and a key in
// the file of --config. A flag wins over the environment, that over the file, that over the
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
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/internal/cni/install"
	"github.com/sluice-net/sluice/internal/lib/preflight"
	"github.com/sluice-net/sluice/internal/lib/settings"
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
	Neutron   Neutron   `koanf:",squash"`
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
	renderersFlag(f, "dataplanes that enforce: acl (VPP, or a vpp-agent), session with acl (applications on VPP's host stack), vpp-plugin (a VPP with Sluice's plugin), xdp (the kernel, at pods' veth pairs)")
	storeFlags(f)
	vppFlags(f)
	ligatoFlags(f)
	kernelFlags(f)
	linkFlags(f)
	endpointFlags(f)
	cniFlags(f)
}

// DevFlags are the flags of dev. The embedded dataplane has no veth pairs.
func DevFlags(f *pflag.FlagSet) {
	commonFlags(f)
	renderersFlag(f, "renderers of the embedded dataplane: acl, and session with acl (applications on its host stack)")
	devFlags(f)
}

// Load reads the settings from the file, the environment and the flags.
func Load(flags *pflag.FlagSet, environ []string) (Config, error) {
	return settings.Load[Config](flags, environ)
}

// Check validates the settings without looking at the machine.
func (c Config) Check() error {
	if err := c.Log.check(); err != nil {
		return err
	}
	_, errNode := c.Node.FurtherAddresses()
	_, errACL := c.ACL()
	return errors.Join(c.Ligato.check(), c.checkBackends(), errNode, errACL)
}

// checkBackends validates the settings of the dataplanes.
func (c Config) checkBackends() error {
	if err := c.Enforce.check(c.IsDev(), c.Ligato.Wanted()); err != nil {
		return err
	}
	if err := c.Kernel.check(); err != nil {
		return err
	}
	return errors.Join(c.Endpoints.check(), c.Link.check(), c.CNI.check(c.Endpoints.CNIConfDir))
}

// IsDev reports whether the settings are those of dev. Only run has --xdp-mode.
func (c Config) IsDev() bool { return c.Kernel.Mode == "" }

// Embedded reports whether the dataplane runs in this process: neither a VPP socket nor a vpp-agent
// is configured.
func (c Config) Embedded() bool {
	return c.VPP.Socket == "" && !c.Ligato.Wanted() && !c.OnNeutron()
}

// OnNeutron reports whether the settings are those of sluice-neutron.
func (c Config) OnNeutron() bool { return c.Enforce.Has(RendererSecgroup) }

// ApplyTimeout returns how long an Apply may take; 0: as long as usual. Neutron creates 100 to 200
// rules in a second, and changes 10 to 20 ports.
func (c Config) ApplyTimeout() time.Duration {
	if c.OnNeutron() {
		return 10 * time.Minute
	}
	return 0
}

// Reflected reports whether another program writes the state. In development the agent does.
func (c Config) Reflected() bool { return !c.Embedded() }

// Elected reports whether the agent is the one of sluice-neutron, which runs for a term.
func (c Config) Elected() bool { return c.Enforce.Has(RendererSecgroup) }

// TalksToVPP reports whether a renderer programs VPP by its binary API.
func (c Config) TalksToVPP() bool {
	return c.Enforce.Has(RendererPlugin) || c.Enforce.Has(RendererACL) && !c.Ligato.Wanted()
}

// KeepsRules reports whether ACLs of VPP are the only dataplane. The agent reads the rules that VPP
// already enforces before it uses the saved state.
func (c Config) KeepsRules() bool {
	return c.VPP.Socket != "" && !c.Ligato.Wanted() && !c.Enforce.Has(RendererXDP) && !c.Enforce.Has(RendererPlugin)
}

// ACL returns the options of the ACL renderer that settings determine.
func (c Config) ACL() (acl.Options, error) { return c.VPP.options(c.Enforce) }

// Installer returns the installer of the CNI plugin.
func (c Config) Installer(ctx context.Context, log *slog.Logger) (*install.Installer, error) {
	members, err := c.CNI.members(c.Listen.APISocket, c.Kernel.Pins)
	if err != nil {
		return nil, err
	}
	return c.CNI.installer(ctx, log, c.Endpoints.CNIConfDir, members)
}

// Idle is a setting that was given and has no effect.
type Idle struct{ Name, Why string }

// Idle returns the given settings that belong to a feature which is off.
func (c Config) Idle(given []string) (out []Idle) {
	for _, name := range given {
		kind, _, _ := strings.Cut(name, "-")
		switch {
		case slices.Contains(ofPlugin, name) && c.Enforce.Has(RendererPlugin):
		case name == "vpp-plugin-memory" && !c.Enforce.Has(RendererPlugin):
			out = append(out, Idle{name, "--renderers has no vpp-plugin"})
		case (kind == "xdp" || slices.Contains(ofKernel, name)) && !c.Enforce.Has(RendererXDP):
			out = append(out, Idle{name, "--renderers has no xdp"})
		case c.CNI.idle(name, c.Enforce.Has(RendererXDP)):
			out = append(out, Idle{name, "--cni-bin-dir is not set"})
		case kind == "ligato" && !c.Ligato.Wanted():
			out = append(out, Idle{name, "--acl-target is not ligato"})
		case (name == "vpp-socket" || name == "vpp-stats-socket") && !c.TalksToVPP():
			out = append(out, Idle{name, "no renderer programs VPP"})
		case kind == "acl" && !c.Enforce.Has(RendererACL):
			out = append(out, Idle{name, "--renderers has no acl"})
		}
	}
	return out
}

// ofKernel are the settings of the kernel dataplane whose names do not begin with xdp.
var ofKernel = []string{"policy-memory", "take-over", "new-interfaces", "pod-interfaces", "cni-results", "endpoints-file", "non-ip", "pod-tunnels", "pod-tunnel-ports"}

// ofPlugin are settings of the kernel dataplane that the plugin of VPP has, too.
var ofPlugin = []string{"policy-memory", "pod-tunnels", "pod-tunnel-ports", "xdp-any-source", "xdp-learn", "xdp-flows", "xdp-events", "xdp-sample"}

// Enforcers returns log attributes that describe the dataplanes.
func (c Config) Enforcers() (out []any) {
	out = []any{"renderers", c.Enforce.Renderers}
	switch {
	case !c.Enforce.Has(RendererACL):
	case c.Ligato.Wanted():
		out = append(out, "target", c.Ligato.Target)
	default:
		out = append(out, "target", c.Ligato.Target, "vpp", c.VPP.Socket)
	}
	if c.Enforce.Has(RendererPlugin) {
		out = append(out, "plugin_memory", c.VPP.PluginMemory)
	}
	if c.Enforce.Has(RendererXDP) {
		out = append(out, "xdp_mode", c.Kernel.Mode)
	}
	return out
}

// Preflight returns the checks of the settings and of the machine. They contact no other host, so
// run makes them at each start.
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
