package config

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
)

// Enforce has the settings that are common to all dataplanes.
type Enforce struct {
	Renderers     []string `koanf:"renderers"`
	Established   string   `koanf:"established"`
	ExemptTraffic []string `koanf:"exempt-traffic"`
}

// Values of Enforce.Renderers.
const (
	RendererACL     = "acl"
	RendererSession = "session"
	RendererXDP     = "xdp"
	RendererPlugin  = "vpp-plugin"
)

// Words of --exempt-traffic.
const (
	exemptNeighbours = "neighbours"
	exemptErrors     = "icmp-errors"
)

func renderersFlag(f *pflag.FlagSet, usage string) {
	f.StringSlice("renderers", []string{RendererACL}, usage)
}

func ruleFlags(f *pflag.FlagSet) {
	f.String("established", acl.Revoke.String(), "established connections that policy no longer permits: revoke cuts them, keep lets them finish; use the same value on all nodes")
	f.StringSlice("exempt-traffic", []string{exemptNeighbours, exemptErrors}, "exempt traffic, permitted whatever the policies: neighbours (ND), icmp-errors, and addresses or CIDRs that may talk to every pod")
}

// Has reports whether a renderer is configured.
func (e Enforce) Has(name string) bool { return slices.Contains(e.Renderers, name) }

// Keeps reports whether established connections survive when policy no longer permits them.
func (e Enforce) Keeps() bool { return e.Established == acl.Keep.String() }

// check validates the renderers. Session rules cover only applications on VPP's host stack, so they
// need ACLs beside them.
func (e Enforce) check(dev, ligato bool) error {
	known := "acl, session, vpp-plugin or xdp"
	if dev {
		known = "acl or session"
	}
	for _, name := range e.Renderers {
		if !slices.Contains([]string{RendererACL, RendererSession, RendererXDP, RendererPlugin}, name) {
			return fmt.Errorf("--renderers %q: want %s", name, known)
		}
	}
	switch {
	case e.Has(RendererSession) && !e.Has(RendererACL):
		return fmt.Errorf("--renderers %q: acl is missing; session rules do not cover pods behind interfaces", e.Renderers)
	case e.Has(RendererSession) && ligato:
		return fmt.Errorf("--renderers %q: session needs the binary API of VPP, and --acl-target ligato uses none", e.Renderers)
	case e.Has(RendererPlugin) && dev:
		return fmt.Errorf("--renderers %q: vpp-plugin needs a VPP, and the dataplane of dev is embedded; use sluice-agent run", e.Renderers)
	case e.Has(RendererPlugin) && e.Has(RendererXDP):
		return fmt.Errorf("--renderers %q: a pod is connected to VPP or to the kernel; leave out vpp-plugin or xdp", e.Renderers)
	case e.Has(RendererPlugin) && ligato:
		return fmt.Errorf("--renderers %q: vpp-plugin needs the binary API of VPP, and --acl-target ligato uses none", e.Renderers)
	case e.Has(RendererXDP) && dev:
		return fmt.Errorf("--renderers %q: xdp needs pods' veth pairs, and dev has none; use sluice-agent run", e.Renderers)
	}
	return nil
}

// Exempt parses the exempt traffic.
func (e Enforce) Exempt() (renderer.Infra, error) {
	out := renderer.Infra{NoNeighbours: true, NoErrors: true}
	for _, s := range e.ExemptTraffic {
		block, err := prefix(s)
		switch {
		case s == exemptNeighbours:
			out.NoNeighbours = false
		case s == exemptErrors:
			out.NoErrors = false
		case err == nil:
			out.Addresses = append(out.Addresses, block)
		default:
			return out, fmt.Errorf("--exempt-traffic %q: want %s, %s, an address or a CIDR", s, exemptNeighbours, exemptErrors)
		}
	}
	if _, err := out.Check(); err != nil {
		return out, fmt.Errorf("--exempt-traffic: %w", err)
	}
	return out, nil
}

// prefix parses an address or a CIDR.
func prefix(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.ParsePrefix(s)
}
