package config

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
)

// Enforce says who enforces, and what holds for all of them.
type Enforce struct {
	Renderers   []string `koanf:"renderers"`
	Established string   `koanf:"established"`
	Infra       []string `koanf:"infra"`
}

// What Enforce.Renderers can hold.
const (
	RendererACL     = "acl"
	RendererSession = "session"
	RendererXDP     = "xdp"
)

// Words of --infra.
const (
	infraNeighbours = "neighbours"
	infraErrors     = "icmp-errors"
)

func renderersFlag(f *pflag.FlagSet, usage string) {
	f.StringSlice("renderers", []string{RendererACL}, usage)
}

func ruleFlags(f *pflag.FlagSet) {
	f.String("established", acl.Revoke.String(), "open flows that policy no longer permits: revoke cuts them, keep lets them end; the same on all nodes")
	f.StringSlice("infra", []string{infraNeighbours, infraErrors}, "what passes whatever policies say: neighbours, icmp-errors, and addresses or CIDRs that talk with every pod")
}

// Has reports whether a renderer is asked for.
func (e Enforce) Has(name string) bool { return slices.Contains(e.Renderers, name) }

// Keeps reports whether flows live on that are open when policy no longer permits them.
func (e Enforce) Keeps() bool { return e.Established == acl.Keep.String() }

// check checks who enforces. Session rules decide about applications on the host stack of VPP
// only, so they come beside ACLs.
func (e Enforce) check(dev, ligato bool) error {
	known := "acl, session or xdp"
	if dev {
		known = "acl or session"
	}
	for _, name := range e.Renderers {
		if name != RendererACL && name != RendererSession && name != RendererXDP {
			return fmt.Errorf("--renderers %q: want %s", name, known)
		}
	}
	switch {
	case e.Has(RendererSession) && !e.Has(RendererACL):
		return fmt.Errorf("--renderers %q: acl is missing; session rules say nothing about pods that are interfaces", e.Renderers)
	case e.Has(RendererSession) && ligato:
		return fmt.Errorf("--renderers %q: session needs the binary API of VPP, and --acl-target ligato uses none", e.Renderers)
	case e.Has(RendererXDP) && dev:
		return fmt.Errorf("--renderers %q: xdp is for veth pairs of pods, and dev has none; use sluice-agent run", e.Renderers)
	}
	return nil
}

// Exempt reads what passes whatever policies say.
func (e Enforce) Exempt() (renderer.Infra, error) {
	out := renderer.Infra{NoNeighbours: true, NoErrors: true}
	for _, s := range e.Infra {
		block, err := prefix(s)
		switch {
		case s == infraNeighbours:
			out.NoNeighbours = false
		case s == infraErrors:
			out.NoErrors = false
		case err == nil:
			out.Addresses = append(out.Addresses, block)
		default:
			return out, fmt.Errorf("--infra %q: want %s, %s, an address or a CIDR", s, infraNeighbours, infraErrors)
		}
	}
	if _, err := out.Check(); err != nil {
		return out, fmt.Errorf("--infra: %w", err)
	}
	return out, nil
}

// prefix reads an address, or a block of addresses.
func prefix(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.ParsePrefix(s)
}
